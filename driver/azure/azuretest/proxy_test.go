package azuretest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

const (
	management = "https://" + azuretest.HostManagement
	group      = "/subscriptions/s/resourceGroups/g"
	version    = "?api-version=2023-07-01"
)

// behind returns a client of a cloud behind a proxy, which lasts until the test ends.
func behind(t *testing.T, cloud http.Handler) (*azuretest.Proxy, *http.Client) {
	t.Helper()
	proxy, err := azuretest.NewProxy(t.Context(), cloud)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(proxy.Authority())
	transport := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy, &http.Client{Transport: transport}
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request, and returns the answer.
func send(ctx context.Context, t *testing.T, client *http.Client, method, to, body string, header http.Header) (answer, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(raw)}, err
}

// The cloud is found under Azure's names, and nothing else is.
func TestProxy(t *testing.T) {
	cloud := azuretest.New(azuretest.Config{Secrets: map[string]string{"id": "secret"}})
	proxy, client := behind(t, cloud)
	for to, want := range map[string]string{
		"https://" + azuretest.HostLogin + "/common/discovery/instance": "https://" + azuretest.HostLogin +
			"/common/v2.0/.well-known/openid-configuration",
		management + group + "/providers/a/b/c" + version: "InvalidAuthenticationToken",
	} {
		if got, err := send(t.Context(), t, client, http.MethodGet, to, "", nil); err != nil || !strings.Contains(got.body, want) {
			t.Errorf("GET %s: %+v, %v; want %s", to, got, err, want)
		}
	}
	if _, err := send(t.Context(), t, client, http.MethodGet, "https://elsewhere.example/", "", nil); err == nil {
		t.Error("the proxy leads to another name")
	}
	if got, err := send(t.Context(), t, client, http.MethodGet, "http://elsewhere.example/", "", nil); err != nil ||
		got.status != http.StatusForbidden {
		t.Errorf("the proxy forwards a request without a tunnel: %+v, %v", got, err)
	}
	cloud.Fail(azuretest.NoAnswer)
	before, begun := cloud.Stats().Requests, make(chan error, 1)
	go func() { // with a method that the client does not repeat by itself
		_, err := send(t.Context(), t, client, http.MethodPost, management+group+version, "", nil)
		begun <- err
	}()
	for cloud.Stats().Requests == before {
		select {
		case err := <-begun:
			t.Fatalf("an answer: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	proxy.Cut()
	if err := <-begun; err == nil {
		t.Error("no error of a connection that was cut")
	}
}

// What other programs than this module's driver ask, and how the cloud answers.
func TestOtherRequests(t *testing.T) {
	_, client := behind(t,
		azuretest.New(azuretest.Config{Secrets: map[string]string{"id": "secret"}, PollAfter: time.Minute, CreateTime: time.Hour}))
	issued, err := send(t.Context(), t, client, http.MethodPost, "https://"+azuretest.HostLogin+"/t/oauth2/v2.0/token",
		"client_id=id&client_secret=secret", nil)
	_, token, found := strings.Cut(issued.body, `"access_token":"`)
	if err != nil || !found {
		t.Fatalf("no token: %+v, %v", issued, err)
	}
	token, _, _ = strings.Cut(token, `"`)
	header := http.Header{"Authorization": {"Bearer " + token}}
	const graph = "/providers/Microsoft.ResourceGraph/resources"
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{http.MethodHead, "/subscriptions/s/resourcegroups/g" + version, "", http.StatusNoContent, ""},
		{http.MethodGet, "/subscriptions/s/resourcegroups/g" + version, "", http.StatusNotFound, "InvalidResourceType"},
		{http.MethodGet, group + "/providers/Microsoft.Network/virtualNetworks/v/subnets/n" + version, "", http.StatusOK, `"name":"n"`},
		{http.MethodGet, group + "/providers/Microsoft.Network/virtualNetworks/v" + version, "", http.StatusNotFound, "InvalidResourceType"},
		{http.MethodGet, group + "/providers/Microsoft.Compute/disks/d", "", http.StatusBadRequest, "MissingApiVersionParameter"},
		{
			http.MethodPut, group + "/providers/Microsoft.Compute/disks/d" + version, `{"location": "here", "tags": {"a": "b"}, "properties": {}}`,
			http.StatusAccepted, "",
		},
		{
			http.MethodPost, graph + version, `{"subscriptions": ["s"], "query": "Resources | project name"}`, http.StatusOK,
			`"data":[{"name":"d"}]`,
		},
		{http.MethodPost, graph + version, `{"subscriptions": ["other"], "query": "Resources | project name"}`, http.StatusOK, `"data":[]`},
		{http.MethodPost, graph + version, `{"subscriptions": ["s"], "query": "Resources | count"}`, http.StatusBadRequest, "InvalidQuery"},
	} {
		got, err := send(t.Context(), t, client, test.method, management+test.path, test.body, header)
		if err != nil || got.status != test.status || !strings.Contains(got.body, test.want) {
			t.Fatalf("%s %s: %+v, %v; want %d and %s", test.method, test.path, got, err, test.status, test.want)
		}
		operation := got.header.Get("Azure-AsyncOperation")
		if operation == "" {
			continue
		}
		state, err := send(t.Context(), t, client, http.MethodGet, operation, "", header)
		if wait := got.header.Get("Retry-After"); err != nil || wait != "60" || state.header.Get("Retry-After") != wait {
			t.Errorf("the operation has to be asked for after %q s, and its state is %+v, %v; want 60 for both", wait, state, err)
		}
	}
}
