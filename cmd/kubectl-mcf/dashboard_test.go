package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// TestOnlyTheBrowserWithTheKeyIsServed: other programs, sites and paths are not, and the replica
// gets no cookies.
func TestOnlyTheBrowserWithTheKeyIsServed(t *testing.T) {
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("Cookie")+r.Header.Get("Authorization")+r.Header.Get("X-Forwarded-For"))
	}))
	defer replica.Close()
	base, err := url.Parse(replica.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewUnstartedServer(nil)
	address := proxy.Listener.Addr().String()
	proxy.Config.Handler = pageProxy(base, http.DefaultTransport, "the-key", address)
	proxy.Start()
	defer proxy.Close()
	jar, _ := cookiejar.New(nil)
	browser, other := &http.Client{Jar: jar}, &http.Client{}
	for _, tc := range []struct {
		client           *http.Client
		method, path     string
		host, wantAnswer string
		want             int
	}{
		{other, "GET", "/page/", address, "expected the URL", 403},
		{other, "GET", "/page/?key=other", address, "expected the URL", 403},
		{browser, "GET", "/page/?key=the-key", address, "/page/ ", 200},
		{browser, "GET", "/page/events", address, "/page/events ", 200},
		{other, "GET", "/page/events", address, "expected the URL", 403},
		{browser, "GET", "/page/", "attacker.example.org", "expected a request", 403},
		{browser, "GET", "/metrics", address, "404", 404},
		{browser, "POST", "/page/login", address, "Method", 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, proxy.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tc.host
		resp, err := tc.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tc.want || !strings.HasPrefix(string(content), tc.wantAnswer) {
			t.Errorf("%s %s of %s: %d %q, want %d %q", tc.method, tc.path, tc.host, resp.StatusCode, content, tc.want, tc.wantAnswer)
		}
	}
}

func TestTheReplicaOfThePageLives(t *testing.T) {
	f := view.Fleet{Replicas: []view.Replica{{Name: "fleet-0"}, {Name: "fleet-1", Lives: true}, {Name: "fleet-2", Lives: true}}}
	for name, want := range map[string]string{"": "fleet-1", "fleet-2": "fleet-2", "fleet-0": "", "other": ""} {
		if got, err := servingReplica(f, name); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
}
