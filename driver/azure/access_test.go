package azure_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

// elsewhere is a server that is not of the cloud.
const elsewhere = "elsewhere.example"

// rewriter is a transport that replaces texts in answers, and counts the requests to another
// server.
type rewriter struct {
	next     http.RoundTripper
	old, new string

	mu      sync.Mutex
	strayed int
}

func (l *rewriter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Hostname() == elsewhere {
		l.mu.Lock()
		l.strayed++
		l.mu.Unlock()
		return reply(r, http.StatusOK, `{"value": []}`), nil
	}
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	changed := reply(r, resp.StatusCode, strings.ReplaceAll(string(body), l.old, l.new))
	changed.Header = resp.Header
	changed.Header.Del("Content-Length")
	return changed, nil
}

// A link to the next page that names another server is read from the cloud itself.
func TestListStaysAtTheCloud(t *testing.T) {
	s := serve(t, azuretest.Config{PageSize: 2})
	way := &rewriter{next: s.transport(t), old: strings.TrimPrefix(s.server.URL, "https://"), new: elsewhere}
	d := s.driver(t, func(cfg *azure.Config) { cfg.Transport = way })
	for i := range 5 {
		name := fmt.Sprintf("m-%d", i)
		s.Create(vmID(name), map[string]string{azure.TagNamespace: "shoot--a", azure.TagMachine: name, azure.TagMachineUID: "uid-of-" + name})
	}
	way.old = `"nextLink":"` + s.server.URL
	way.new = `"nextLink":"https://` + elsewhere
	listed, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: class(specOf("")), Secret: secret()})
	if err != nil || len(listed.Machines) != 5 || way.strayed > 0 {
		t.Errorf("listed %v, %v; %d requests to another server; want 5 and none", listed.Machines, err, way.strayed)
	}
}

// A secret is sent to no server that an answer names.
func TestSecretsStayAtTheCloud(t *testing.T) {
	s := serve(t, azuretest.Config{})
	way := &rewriter{next: s.transport(t), old: `"token_endpoint":"` + s.server.URL, new: `"token_endpoint":"https://` + elsewhere}
	d := s.driver(t, func(cfg *azure.Config) { cfg.Transport = way })
	_, err := create(t, d, target(machine("a"), specOf("")))
	if code := driver.CodeOf(err); code == driver.OK || code == driver.NotFound || way.strayed > 0 {
		t.Errorf("%v, %d requests to another server; want an error, and none", err, way.strayed)
	}
}

func TestWorkloadIdentity(t *testing.T) {
	s := serve(t, azuretest.Config{})
	directory := t.TempDir()
	file := filepath.Join(directory, "token")
	if err := os.WriteFile(file, []byte(clientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.driver(t, func(cfg *azure.Config) { cfg.TokenDirectory = directory })
	of := target(machine("a"), specOf(emptyDisk))
	delete(of.Secret, azure.SecretClientSecret)
	of.Secret[azure.SecretTokenFile] = []byte(file)
	if _, err := create(t, d, of); err != nil {
		t.Fatal(err)
	}
	of.Secret[azure.SecretTokenFile] = []byte("/etc/hostname")
	if _, err := create(t, d, of); driver.CodeOf(err) != driver.InvalidArgument {
		t.Errorf("with a file of another directory: %v, want InvalidArgument", err)
	}
	of.Secret[azure.SecretTokenFile] = []byte(filepath.Join(directory, "missing"))
	if _, err := create(t, d, of); driver.CodeOf(err) != driver.Unavailable {
		t.Errorf("with a file that does not exist: %v, want Unavailable", err)
	}
}

// slowTokens is a transport in which requests for tokens are not answered.
type slowTokens struct {
	next    http.RoundTripper
	arrived chan struct{}
}

func (w *slowTokens) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/subscriptions/") {
		return w.next.RoundTrip(r)
	}
	w.arrived <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A call ends with its own context, also while another one obtains the token for both.
func TestCallsDoNotWaitForTheTokenOfAnother(t *testing.T) {
	s := serve(t, azuretest.Config{})
	way := &slowTokens{next: s.transport(t), arrived: make(chan struct{}, 1)}
	d := s.driver(t, func(cfg *azure.Config) { cfg.Transport = way })
	of := target(machine("a"), specOf(""))
	status := func(ctx context.Context) driver.Code {
		_, err := d.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: of})
		return driver.CodeOf(err)
	}
	first, cancel := context.WithCancel(t.Context())
	ended := make(chan driver.Code)
	go func() { ended <- status(first) }()
	<-way.arrived
	second, cancelSecond := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelSecond()
	if code := status(second); code != driver.DeadlineExceeded {
		t.Errorf("the second call: %v, want DeadlineExceeded", code)
	}
	cancel()
	if code := <-ended; code != driver.Canceled {
		t.Errorf("the first call: %v, want Canceled", code)
	}
}

// Each request has a span, which has no secret and no user data.
func TestSpansOfRequests(t *testing.T) {
	s := serve(t, azuretest.Config{})
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	d := s.driver(t, func(cfg *azure.Config) { cfg.Tracer = provider.Tracer("test") })
	if _, err := create(t, d, target(machine("a"), specOf(emptyDisk))); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, span := range recorder.Ended() {
		count[span.Name()]++
		for _, attribute := range span.Attributes() {
			if text := attribute.Value.String(); strings.Contains(text, clientSecret) || strings.Contains(text, "abcdef") {
				t.Errorf("span %s has %s", span.Name(), text)
			}
		}
	}
	for name, want := range map[string]int{
		"azure.token_get": 1, "azure.virtual_machine_get": 2, "azure.nic_get": 2, "azure.nic_create": 1, "azure.virtual_machine_create": 1,
	} {
		if count[name] != want {
			t.Errorf("%d spans %s, want %d: %v", count[name], name, want, count)
		}
	}
}

// A class of a cloud that the operator has not configured cannot be served, and an operator's
// mistake is reported.
func TestClouds(t *testing.T) {
	s := serve(t, azuretest.Config{})
	d := s.driver(t, nil)
	spec := strings.Replace(specOf(""), `"location"`, `"cloudConfiguration": {"name": "AzureChina"}, "location"`, 1)
	if _, err := create(t, d, target(machine("a"), spec)); driver.CodeOf(err) != driver.InvalidArgument {
		t.Errorf("%v, want InvalidArgument", err)
	}
	clouds := s.clouds()
	broken := clouds["AzurePublic"]
	broken.ActiveDirectoryAuthorityHost = "login.example.com"
	clouds["AzurePublic"] = broken
	if _, err := azure.New(azure.Config{Clouds: clouds}); err == nil {
		t.Error("an endpoint without a scheme is accepted")
	}
	if _, err := azure.New(azure.Config{}); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
