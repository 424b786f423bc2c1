package replica

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/serving"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/planted"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

// logBuffer has what was logged. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// logged has the log of the process written to a buffer until the test ends, as the flags configure
// it.
func logged(t *testing.T, format string, verbosity logsapi.VerbosityLevel) *logBuffer {
	t.Helper()
	var log logBuffer
	logs := flags.Logs{Config: logsapi.NewLoggingConfiguration()}
	logs.Config.Format, logs.Config.Verbosity = format, verbosity
	if err := logs.Apply(&logsapi.LoggingOptions{ErrorStream: &log, InfoStream: &log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := logsapi.ResetForTest(nil); err != nil {
			t.Error(err)
		}
		klog.StopFlushDaemon()
		klog.SetLogger(logr.Discard())
	})
	return &log
}

// careless is a driver whose cloud echoes what it is sent, in errors, in its notes and in panics,
// before it does its work.
type careless struct {
	driver.Driver

	mu    sync.Mutex
	calls map[string]int // by operation and machine
}

// nth returns how often a call was sent before.
func (c *careless) nth(op string, t driver.Target) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := op + " " + string(t.Machine.UID)
	c.calls[key]++
	return c.calls[key] - 1
}

func echoOf(t driver.Target, more ...string) string {
	for _, value := range t.Secret {
		more = append(more, string(value))
	}
	return planted.Echo(more...)
}

func (c *careless) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	echo := echoOf(req.Target, append(strings.Fields(string(req.UserData)), string(req.UserData))...)
	switch c.nth("create", req.Target) {
	case 0:
		return driver.CreateMachineResponse{LastKnownState: echo}, &driver.Error{
			Code: driver.Internal, Op: driver.OpCreate, Err: fmt.Errorf("cloud: %w", errors.New(echo)),
		}
	case 1:
		panic(echo)
	}
	resp, err := c.Driver.CreateMachine(ctx, req)
	resp.LastKnownState = echo
	return resp, err
}

func (c *careless) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	if c.nth("delete", req.Target) == 0 {
		return driver.DeleteMachineResponse{}, errors.New(echoOf(req.Target)) // not of the type that drivers have to return
	}
	return c.Driver.DeleteMachine(ctx, req)
}

func (c *careless) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	if c.nth("status", req.Target) == 0 {
		return driver.GetMachineStatusResponse{}, driver.Errorf(driver.OpStatus, driver.Unavailable, "%s", echoOf(req.Target))
	}
	return c.Driver.GetMachineStatus(ctx, req)
}

// Secrets that are planted. Bootstrap tokens, which the fleet creates, are added.
const (
	plantedUserData    = "planted+user/data=7d4f1c"
	plantedCredentials = "planted+credentials/of=secretRef-93b1"
	plantedOfRef       = "planted+credentials/of=credentialsSecretRef-0aa2"
	plantedBearer      = "planted-token-of-the-replica-5be8"
	plantedReader      = "planted-token-of-a-reader-c61e"
)

// plantSecrets creates a class in namespace a with secrets in both of its Secrets.
func (t *trial) plantSecrets() {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, data := range map[string]map[string]any{
		"small": {
			"userData": encode("#!/bin/sh\nexport X=" + plantedUserData + "\njoin <<BOOTSTRAP_TOKEN>>\n"), "token": encode(plantedCredentials),
		},
		"credentials": {"token": encode(plantedOfRef)},
	} {
		t.put(t.control, "secrets", map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "a", "name": name}, "data": data,
		})
	}
	t.put(t.control, "machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": "a", "name": "small"},
		"provider": "simulated", "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": "small"},
		"credentialsSecretRef": map[string]any{"name": "credentials"},
	})
}

// TestPlantedSecretsAreShownNowhere: machines live with a cloud that echoes its requests, at the
// highest verbosity. No log, span, Event, metric, page or object but the Secrets has a secret.
func TestPlantedSecretsAreShownNowhere(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			o := replicaOptions(func(o *Options) { o.Fleet.DebugHooks = true })
			log := logged(t, format, 10)
			synctest.Test(t, func(t *testing.T) { showsNoSecret(t, o, log) })
		})
	}
}

func showsNoSecret(t *testing.T, o Options, log *logBuffer) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	r := newTrial(t, o, 1, nil)
	defer r.end()
	r.logger, r.bearer, r.tracer = klog.Background(), plantedBearer, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	r.wrapDriver = func(d driver.Driver) driver.Driver { return &careless{Driver: d, calls: map[string]int{}} }
	r.createUnmanaged()
	r.plantSecrets()
	root := r.putRoot("a", "d", 2)
	p := r.start("fleet-0")
	secrets := planted.Secrets{
		"user data": plantedUserData, "credentials of secretRef": plantedCredentials, "credentials of credentialsSecretRef": plantedOfRef,
		"token of the replica": plantedBearer, "token of a reader": plantedReader,
	}
	tokens := 0
	until := func(what string, cond func() bool) {
		t.Helper()
		if !r.run(20*time.Minute, func() bool { tokens += r.addTokens(secrets); return cond() }) {
			t.Fatalf("%s does not come true: %s %s", what, r.missing(), r.wrong)
		}
	}
	var shown []string // while the machines live, and after that
	show := func(what string, texts ...string) {
		for _, text := range texts {
			for _, found := range secrets.Find(text) {
				shown = append(shown, what+": "+found)
			}
		}
	}
	until("all machines run", func() bool { return r.missing() == "" })
	showPages(t, p, show)
	showObjects(r, show)
	r.deleteRoot(root)
	until("all machines are gone", func() bool { return len(r.control.List("machines")) == 0 })
	showPages(t, p, show)
	showObjects(r, show)
	show("log", strings.Split(log.String(), "\n")...)
	for _, span := range spans.Ended() {
		show("span "+span.Name(), fmt.Sprint(span.Name(), span.Attributes(), span.Status(), span.Events(), span.Links()))
	}
	slices.Sort(shown)
	for _, found := range slices.Compact(shown)[:min(len(slices.Compact(shown)), 20)] {
		t.Error(found)
	}
	if len(shown) > 20 {
		t.Errorf("and %d more", len(shown)-20)
	}
	// What was searched has content.
	if tokens < 2 || len(spans.Ended()) < 100 || !strings.Contains(log.String(), "[redacted]") || !strings.Contains(log.String(), "Response") {
		t.Errorf("%d tokens, %d spans, log with redacted texts: %t, with headers of answers: %t", tokens, len(spans.Ended()),
			strings.Contains(log.String(), "[redacted]"), strings.Contains(log.String(), "Response"))
	}
}

// addTokens adds the bootstrap tokens that exist now, and returns how many are new.
func (t *trial) addTokens(to planted.Secrets) (added int) {
	for _, o := range t.target.List("secrets") {
		data, _ := o.Object["data"].(map[string]any)
		encoded, _ := data["token-secret"].(string)
		token, err := base64.StdEncoding.DecodeString(encoded)
		if name := "bootstrap token " + o.GetName(); err == nil && len(token) > 0 && to[name] == "" {
			to[name] = string(token)
			added++
		}
	}
	return added
}

// showPages shows all pages of a replica. A reader with its own token is among those who request
// them.
func showPages(t *testing.T, p *process, show func(what string, texts ...string)) {
	t.Helper()
	empty := http.HandlerFunc(ok)
	all := serving.Pages{
		Metrics: serving.ServeMetrics(p.registry, p.registry, klog.Background()),
		Debug:   serving.ServeDebug(serving.Options{Profiling: true}, p.fleet.DebugPages()),
		Statusz: zpages.Statusz(zpages.Status{Now: time.Now, More: p.fleet.StatusRows}), Flagz: empty,
	}
	reviewed, others := serving.Guards(serving.Options{MetricsAuthorization: true},
		serving.NewReviewer(p.fleet.ControlClient(), clocktesting.NewFakePassiveClock(time.Now())))
	for _, mux := range []*http.ServeMux{serving.NewMux(all, serving.Health{
		Live: p.fleet.Live, Ready: p.fleet.Ready,
	}), serving.NewMux(all.Guarded(reviewed, others), serving.Health{Live: p.fleet.Live, Ready: p.fleet.Ready})} {
		for _, path := range []string{
			"/metrics", "/healthz?verbose", "/livez?verbose", "/readyz?verbose", "/statusz", "/debug/slots", "/debug/apiservers",
			"/debug/faultpoints", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1",
			"/debug/pprof/allocs?debug=1", "/debug/pprof/threadcreate?debug=1", "/debug/pprof/mutex?debug=1", "/debug/pprof/block?debug=1",
			"/debug/pprof/symbol",
		} {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			request.Header.Set("Authorization", "Bearer "+plantedReader)
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, request)
			show("page "+path, answer.Body.String())
			if answer.Body.Len() == 0 {
				t.Errorf("%s: status %d and no content", path, answer.Code)
			}
		}
	}
}

// showObjects shows all objects but Secrets.
func showObjects(t *trial, show func(what string, texts ...string)) {
	for _, server := range []*apiserver.Server{t.control, t.target} {
		for _, resource := range []string{
			"machinedeployments", "machinesets", "machines", "machineclasses", "leases", "namespaces", "nodes", "events",
		} {
			for _, o := range server.List(resource) {
				show(resource+" "+o.GetName(), fmt.Sprint(o.Object))
			}
		}
	}
}
