package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

const second = time.Second

var errTest = errors.New("it fails")

// runPass creates the spans of a pass with one step, and a request below it.
func runPass(ctx context.Context, tracer trace.Tracer, queued, worked float64) {
	start := time.Unix(1000, 0)
	after := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	ctx, pass := StartPass(ctx, tracer, Pass{Controller: "machine", Key: "ns/m", Root: "root", Queued: start, Began: after(queued)})
	inStep, step := Step(ctx, StepSpan("CreateVM"))
	Decided(step, "CreateVM", func() (string, string) { return "Missing", "there is none" })
	_, request := Step(inStep, "create machines", trace.WithSpanKind(trace.SpanKindClient))
	request.End()
	step.End()
	pass.End(trace.WithTimestamp(after(queued + worked)))
}

func TestSpansOfAPass(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	const arrival = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	runPass(WithOwner(t.Context(), Owner{Replica: "r", Session: "s", Slot: 3, Epoch: 9, Arrival: arrival}), tracer, 2, 1)
	got := map[string]string{}
	for _, span := range recorder.Ended() {
		var attributes []string
		for _, a := range span.Attributes() {
			attributes = append(attributes, string(a.Key)+"="+a.Value.String())
		}
		got[span.Name()] = fmt.Sprint(strings.Join(attributes, " "), " links ", len(span.Links()))
	}
	want := map[string]string{
		"queue":             " links 0",
		"create VM":         "mcf.verdict=CreateVM mcf.reason=Missing mcf.reason.text=there is none links 0",
		"create machines":   " links 0",
		"reconcile machine": "mcf.root.uid=root mcf.key=ns/m mcf.controller=machine mcf.replica=r mcf.session=s mcf.slot=3 mcf.epoch=9 links 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if queue := recorder.Ended()[0]; queue.EndTime().Sub(queue.StartTime()) != 2*time.Second {
		t.Errorf("in the queue for %s, want 2 s", queue.EndTime().Sub(queue.StartTime()))
	}
}

// A pass that is not recorded has no spans, and nothing that only spans need is computed.
func TestPassThatIsNotRecordedCostsNothing(t *testing.T) {
	for name, tracer := range map[string]trace.Tracer{
		"off":         noop.NewTracerProvider().Tracer(""),
		"not sampled": sdktrace.NewTracerProvider(sdktrace.WithSampler(lifetimes{})).Tracer(""),
	} {
		ctx, span := StartPass(t.Context(), tracer, Pass{Root: "root"})
		below, step := Step(ctx, "decide")
		Decided(step, "Rest", func() (string, string) {
			t.Errorf("%s: the reason is computed", name)
			return "", ""
		})
		if below != ctx || step.IsRecording() || span.IsRecording() {
			t.Errorf("%s: a span is recorded", name)
		}
	}
	if Traces(noop.NewTracerProvider().Tracer("")) || !Traces(sdktrace.NewTracerProvider().Tracer("")) {
		t.Error("only the tracer of the provider that does nothing creates no spans")
	}
}

// Clouds and API servers may repeat what was sent to them.
func TestFailuresHaveNoTextOfOthers(t *testing.T) {
	const secret = "the user data with a token"
	for name, tc := range map[string]struct {
		err        error
		kind, want string
	}{
		"a driver": {
			&driver.Error{Code: driver.ResourceExhausted, Op: driver.OpCreate, Err: errors.New(secret)}, "ResourceExhausted",
			"driver " + string(driver.OpCreate) + ": ResourceExhausted",
		},
		"a driver, deep": {
			errors.Join(errTest, fmt.Errorf("%s: %w", secret, driver.Errorf(driver.OpCreate, driver.Internal, "%s", secret))), "Internal",
			"driver " + string(driver.OpCreate) + ": Internal",
		},
		"an API server": {
			fmt.Errorf("create: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New(secret))), "Forbidden",
			"API server: Forbidden (403)",
		},
		"another":    {errTest, "*errors.errorString", "it fails"},
		"a long one": {errors.New(strings.Repeat("x", 1<<20)), "*errors.errorString", strings.Repeat("x", 1021) + "…"},
	} {
		recorder := tracetest.NewSpanRecorder()
		_, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("").Start(t.Context(), "s")
		Fail(span, tc.err)
		span.End()
		is := recorder.Ended()[0]
		if got := is.Status(); got.Code != codes.Error || got.Description != tc.want {
			t.Errorf("%s: status %.100v, want %.100s", name, got, tc.want)
		}
		if got := is.Attributes()[0]; got.Value.AsString() != tc.kind {
			t.Errorf("%s: error.type %s, want %s", name, got.Value.AsString(), tc.kind)
		}
	}
}

func TestAboutNamesTheObjectAndLinksToItsOrigin(t *testing.T) {
	origin := map[string]string{v1alpha1.AnnotationTraceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	meta := metav1.ObjectMeta{
		Namespace: "n", Name: "o", UID: "u", Generation: 3, Annotations: origin, Labels: map[string]string{v1alpha1.LabelNode: "node-1"},
	}
	for want, object := range map[string]metav1.Object{
		"k8s.namespace.name=n mcf.machine.name=o mcf.machine.uid=u k8s.node.name=node-1":   &v1alpha1.Machine{ObjectMeta: meta},
		"k8s.namespace.name=n mcf.machineset.name=o mcf.machineset.uid=u mcf.generation=3": &v1alpha1.MachineSet{ObjectMeta: meta},
		"k8s.namespace.name=n mcf.machinedeployment.name=o mcf.machinedeployment.uid=u mcf.generation=3": &v1alpha1.MachineDeployment{
			ObjectMeta: meta,
		},
		"k8s.namespace.name=n": &v1alpha1.MachineClass{ObjectMeta: meta},
	} {
		recorder := tracetest.NewSpanRecorder()
		ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("").Start(t.Context(), "s")
		About(ctx, object)
		span.End()
		var got []string
		for _, a := range recorder.Ended()[0].Attributes() {
			got = append(got, string(a.Key)+"="+a.Value.String())
		}
		if text := strings.Join(got, " "); text != want || len(recorder.Ended()[0].Links()) != 1 {
			t.Errorf("got %s with %d links, want %s with one", text, len(recorder.Ended()[0].Links()), want)
		}
	}
	About(t.Context(), &v1alpha1.Machine{}) // no span: no effect
}

func TestRequestsAreReadFromTheirPaths(t *testing.T) {
	for _, tc := range []struct {
		method, path string
		want         request
	}{
		{"POST", "/apis/machine.sapcloud.io/v1alpha1/namespaces/n/machines", request{verb: "create", resource: "machines", namespace: "n"}},
		{"PATCH", "/apis/machine.sapcloud.io/v1alpha1/namespaces/n/machines/m/status", request{
			verb: "patch", resource: "machines/status", namespace: "n", name: "m",
		}},
		{"GET", "/api/v1/nodes", request{verb: "list", resource: "nodes"}},
		{"GET", "/api/v1/nodes/x", request{verb: "get", resource: "nodes", name: "x"}},
		{"DELETE", "/api/v1/namespaces/kube-system/secrets/s", request{verb: "delete", resource: "secrets", namespace: "kube-system", name: "s"}},
		{"PUT", "/api/v1/namespaces/n", request{verb: "update", resource: "namespaces", name: "n"}},
		{"POST", "/api/v1/namespaces/n/pods/p/eviction", request{verb: "create", resource: "pods/eviction", namespace: "n", name: "p"}},
		{"GET", "/version", request{verb: "get", resource: "version"}},
		{"GET", "/api", request{verb: "get", resource: "api"}},
		{"GET", "", request{verb: "get"}},
	} {
		if got := requestOf(tc.method, tc.path); got != tc.want {
			t.Errorf("%s %s: %+v, want %+v", tc.method, tc.path, got, tc.want)
		}
	}
}

func TestRequestsOfPassesHaveSpans(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, "twelve bytes")
	}))
	defer server.Close()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("")
	client := &http.Client{Transport: TraceRequests("target", "/base")(http.DefaultTransport)}
	send := func(ctx context.Context, method, body string) {
		r, err := http.NewRequestWithContext(ctx, method, server.URL+"/base/api/v1/nodes/x", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	send(t.Context(), http.MethodPatch, "x") // no pass: no span
	ctx, pass := tracer.Start(t.Context(), "pass")
	send(ctx, http.MethodPatch, "a body")
	send(ctx, http.MethodDelete, "")
	pass.End()
	spans := recorder.Ended()
	if len(spans) != 3 {
		t.Fatalf("%d spans, want those of two requests and of the pass", len(spans))
	}
	var got []string
	for _, span := range spans[:2] {
		text := span.Name() + " " + span.Status().Code.String()
		for _, a := range span.Attributes() {
			text += " " + string(a.Key) + "=" + a.Value.String()
		}
		got = append(got, text)
	}
	where := fmt.Sprintf("server.address=127.0.0.1 server.port=%s url.full=%s/base/api/v1/nodes/x",
		server.URL[strings.LastIndexByte(server.URL, ':')+1:], server.URL)
	want := []string{
		"patch nodes Unset mcf.api.server=target http.request.method=PATCH mcf.api.verb=patch mcf.api.resource=nodes mcf.api.name=x " +
			"k8s.node.name=x " + where + " http.request.body.size=6 http.response.status_code=200 http.response.body.size=12",
		"delete nodes Error mcf.api.server=target http.request.method=DELETE mcf.api.verb=delete mcf.api.resource=nodes mcf.api.name=x " +
			"k8s.node.name=x " + where + " http.response.status_code=403 http.response.body.size=12",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestStatusesThatAreNormalAnswers(t *testing.T) {
	for status, want := range map[int]bool{200: false, 404: false, 409: false, 410: false, 400: true, 403: true, 429: true, 500: true} {
		if got := isRefusal(status, request{resource: "nodes"}); got != want {
			t.Errorf("%d: a refusal %t", status, got)
		}
	}
	if isRefusal(429, request{resource: "pods/eviction"}) {
		t.Error("an eviction that a budget does not allow now is a failure")
	}
}

// refusedError is the refusal of the Fence.
type refusedError struct{ error }

func (refusedError) NotOurs() bool { return true }

func TestRequestsThatWereNotSentHaveFailedOnlyIfNothingElseEndedThem(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		canceled bool
		want     codes.Code
	}{
		"no answer":            {err: errTest, want: codes.Error},
		"refused by the fence": {err: fmt.Errorf("wrapped: %w", refusedError{errTest})},
		"the pass has ended":   {err: context.Canceled, canceled: true},
	} {
		recorder := tracetest.NewSpanRecorder()
		ctx, pass := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("").Start(t.Context(), "pass")
		ctx, cancel := context.WithCancel(ctx)
		if tc.canceled {
			cancel()
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://server/api/v1/nodes/x", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		fails := roundTripper(func(*http.Request) (*http.Response, error) { return nil, tc.err })
		answer, err := TraceRequests("control", "")(fails).RoundTrip(r) //nolint:bodyclose // there is none
		if !errors.Is(err, tc.err) || answer != nil {
			t.Errorf("%s: the error is %v", name, err)
		}
		cancel()
		pass.End()
		if got := recorder.Ended()[0].Status().Code; got != tc.want {
			t.Errorf("%s: status %s, want %s", name, got, tc.want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
