package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func TestTracingDoesNotStartUnconfigured(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no endpoint": {},
		"none":        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_TRACES_EXPORTER": "none"},
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_SDK_DISABLED": "true"},
		"always off":  {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_TRACES_SAMPLER": "always_off"},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range env {
				t.Setenv(key, value)
			}
			provider, flush, err := NewTracerProvider(t.Context(), Process{Replica: "r", Version: "v1"})
			if err != nil {
				t.Fatal(err)
			}
			if _, idle := provider.(noop.TracerProvider); !idle {
				t.Errorf("got %T", provider)
			}
			if err := flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTracingStartsWithAnEndpointOnly(t *testing.T) {
	for _, protocol := range []string{"", "grpc", "http/protobuf"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9") // no server, and no error
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
		provider, flush, err := NewTracerProvider(t.Context(), Process{Replica: "r", Version: "v1"})
		if err != nil {
			t.Fatalf("%q: %v", protocol, err)
		}
		if _, ok := provider.(*sdktrace.TracerProvider); !ok {
			t.Errorf("%q: got %T", protocol, provider)
		}
		if err := flush(t.Context()); err != nil {
			t.Errorf("%q: %v", protocol, err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke")
	if _, _, err := NewTracerProvider(t.Context(), Process{Replica: "r", Version: "v1"}); err == nil {
		t.Error("no error for an unknown protocol")
	}
}

// broken fails every create with an error that is not the contract's.
type broken struct{ driver.Driver }

func (broken) CreateMachine(context.Context, driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	return driver.CreateMachineResponse{}, errors.New("bare")
}

func (broken) GetMachineStatus(context.Context, driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	return driver.GetMachineStatusResponse{}, driver.Errorf(driver.OpStatus, driver.NotFound, "none")
}

func (broken) ListMachines(context.Context, driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	return driver.ListMachinesResponse{}, nil
}

func TestEachCallHasASpanAndATypedError(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	d := TraceDriver(broken{}, "p", tracer, nil)
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: "u"}}
	ctx := WithOwner(t.Context(), Owner{Replica: "r", Slot: 7})
	_, err := d.CreateMachine(ctx, driver.CreateMachineRequest{Target: driver.Target{Machine: machine}})
	if typed, ok := errors.AsType[*driver.Error](err); !ok || typed.Code != driver.Unknown || typed.Op != driver.OpCreate {
		t.Errorf("error %#v", err)
	}
	if _, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{}); driver.CodeOf(err) != driver.NotFound {
		t.Error(err)
	}
	spans := recorder.Ended()
	if len(spans) == 3 && spans[2].Status().Code == codes.Error {
		t.Error("NotFound is recorded as an error; expected a normal answer")
	}
	if len(spans) != 3 || spans[0].Name() != "driver.CreateMachine" || spans[1].Name() != "driver.ListMachines" {
		t.Fatalf("spans %v", spans)
	}
	found := map[string]string{}
	for _, a := range spans[0].Attributes() {
		found[string(a.Key)] = a.Value.String()
	}
	if found["mcf.machine.name"] != "m" || found["mcf.driver.code"] != "Unknown" || found["mcf.provider"] != "p" ||
		found["mcf.replica"] != "r" || found["mcf.slot"] != "7" {
		t.Errorf("attributes %v", found)
	}
}

// A driver's error marks the step and the pass that it ends; a normal answer does not. The call
// that may be lost is marked before it, in the trace of the stage, whose ID is in the pass's
// Events.
func TestCallInAPassMarksIt(t *testing.T) {
	tracer, _, exporter := exporting()
	d := TraceDriver(broken{}, "p", tracer, nil)
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: "u"}}
	stage, recorder := Stage{Name: "create machine", ID: "u"}, events.NewFakeRecorder(1)
	ctx, pass := StartPass(t.Context(), tracer, Pass{Controller: "machine", Key: "n/m", Root: "r", Stage: stage})
	read, look := Step(ctx, StepSpan("FindVM"))
	_, _ = d.GetMachineStatus(read, driver.GetMachineStatusRequest{Target: driver.Target{Machine: machine}})
	look.End()
	act, step := Step(ctx, StepSpan("CreateVM"))
	_, _ = d.CreateMachine(act, driver.CreateMachineRequest{Target: driver.Target{Machine: machine}})
	step.End()
	Emit(ctx, recorder, machine, v1alpha1.EventCreateFailed, "it failed")
	pass.End()
	if got := <-recorder.Events; !strings.HasSuffix(got, "it failed (trace "+stage.TraceID()+")") {
		t.Errorf("Event %q has no ID of a trace", got)
	}
	var got []string
	for _, span := range exporter.GetSpans() {
		got = append(got, span.Name+" "+span.Status.Code.String())
		if span.Name == "driver.CreateMachine requested" && span.Parent.SpanID() != stage.root().SpanID() {
			t.Error("the mark of the call is not below the stage")
		}
	}
	want := []string{
		"queue Unset", "driver.GetMachineStatus Unset", "find VM Unset", "driver.CreateMachine requested Unset",
		"driver.CreateMachine Error", "create VM Error", "reconcile machine Error",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// sweeping is a driver that lists nothing, and fails every deletion with an error that is not the
// contract's.
type sweeping struct{ broken }

func (sweeping) Scope(driver.ScopeRequest) (string, error) { return "account", nil }

func (sweeping) ListResources(context.Context, driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	return driver.ListResourcesResponse{Continue: "next"}, nil
}

func (sweeping) DeleteResource(context.Context, driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	return driver.DeleteResourceResponse{}, errors.New("bare")
}

func TestCallsOfSweepersHaveSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	if _, ok := driver.SweeperOf(TraceDriver(broken{}, "p", tracer, nil)); ok {
		t.Error("a driver without a Sweeper has one when it is traced")
	}
	d, ok := driver.SweeperOf(TraceDriver(sweeping{}, "p", tracer, nil))
	if scope, err := d.Scope(driver.ScopeRequest{}); !ok || err != nil || scope != "account" {
		t.Errorf("Scope: %q, %v", scope, err)
	}
	if page, err := d.ListResources(t.Context(), driver.ListResourcesRequest{}); err != nil || page.Continue != "next" {
		t.Errorf("ListResources: %+v, %v", page, err)
	}
	orphan := driver.Resource{Namespace: "n", Machine: "m", MachineUID: "u"}
	_, err := d.DeleteResource(t.Context(), driver.DeleteResourceRequest{Resource: orphan})
	if typed, ok := errors.AsType[*driver.Error](err); !ok || typed.Code != driver.Unknown || typed.Op != driver.OpSweep {
		t.Errorf("DeleteResource: error %#v", err)
	}
	spans := recorder.Ended()
	if len(spans) != 2 || spans[0].Name() != "driver.ListResources" || spans[1].Name() != "driver.DeleteResource" {
		t.Fatalf("spans %v", spans)
	}
	found := map[string]string{}
	for _, a := range spans[1].Attributes() {
		found[string(a.Key)] = a.Value.String()
	}
	if found["k8s.namespace.name"] != "n" || found["mcf.machine.name"] != "m" || found["mcf.machine.uid"] != "u" ||
		found["mcf.driver.code"] != "Unknown" {
		t.Errorf("attributes %v", found)
	}
}

func TestTraceparent(t *testing.T) {
	if got := Traceparent(t.Context()); got != "" {
		t.Errorf("without a span: %q", got)
	}
	ctx, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "s")
	defer span.End()
	if got := Traceparent(ctx); len(got) != len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01") {
		t.Errorf("with a span: %q", got)
	}
}

func TestLinkTo(t *testing.T) {
	const origin = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	LinkTo(t.Context(), origin) // no span: no effect
	for traceparent, want := range map[string]string{
		origin: "4bf92f3577b34da6a3ce929d0e0e4736/00f067aa0ba902b7", "": "", "nonsense": "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00": "", // it is not sampled
	} {
		recorder := tracetest.NewSpanRecorder()
		ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test").Start(t.Context(), "s")
		LinkTo(ctx, traceparent)
		span.End()
		got := ""
		for _, link := range recorder.Ended()[0].Links() {
			got += link.SpanContext.TraceID().String() + "/" + link.SpanContext.SpanID().String()
		}
		if got != want {
			t.Errorf("LinkTo(%q): links %q, want %q", traceparent, got, want)
		}
	}
}
