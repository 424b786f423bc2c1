package telemetry

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// exporting returns a tracer as NewTracerProvider sets it up, and what it exports.
func exporting() (trace.Tracer, *passes, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	p := newPasses(sdktrace.NewSimpleSpanProcessor(exporter))
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p), sdktrace.WithIDGenerator(StageIDs{}),
		sdktrace.WithSampler(Lifetimes(1)))
	return provider.Tracer("test"), p, exporter
}

// A pass that has sent nothing and has not failed is not exported; the next one of its key has the
// number of those.
func TestPassesWithoutEffectAreCounted(t *testing.T) {
	tracer, p, exporter := exporting()
	run := func(key string, act func(ctx context.Context, pass trace.Span)) {
		ctx, pass := StartPass(t.Context(), tracer, Pass{Controller: "machine", Key: key, Root: "r"})
		act(ctx, pass)
		pass.End()
	}
	idle := func(ctx context.Context, _ trace.Span) {
		_, step := Step(ctx, StepSpan("Rest"))
		step.End()
	}
	run("ns/a", idle)
	run("ns/a", idle)
	run("ns/b", idle)
	if spans := exporter.GetSpans(); len(spans) != 0 {
		t.Fatalf("passes without an effect are exported: %v", spans)
	}
	run("ns/a", func(ctx context.Context, _ trace.Span) {
		_, request := Step(ctx, "patch machines", trace.WithSpanKind(trace.SpanKindClient))
		request.End()
		if len(exporter.GetSpans()) != 2 {
			t.Error("the spans of a pass are not exported before it ends: they are lost if its process is killed")
		}
	})
	run("ns/c", func(_ context.Context, pass trace.Span) { Fail(pass, errTest) })
	_, other := tracer.Start(t.Context(), "hand-over")
	other.End()
	got := map[string]string{}
	for _, span := range exporter.GetSpans() {
		key := span.Name
		for _, a := range span.Attributes {
			if a.Key == keyKey {
				key += " " + a.Value.AsString()
			}
		}
		got[key] = ""
		for _, a := range span.Attributes {
			if a.Key == idlePassesKey {
				got[key] = a.Value.String()
			}
		}
	}
	want := map[string]string{"queue": "", "patch machines": "", "reconcile machine ns/a": "2", "reconcile machine ns/c": "", "hand-over": ""}
	if diff := cmp.Diff(want, got); diff != "" || len(p.idle) != 1 {
		t.Errorf("exported (-want +got):\n%s\nkeys with passes that were not: %v", diff, p.idle)
	}
}

func TestBufferedSpansAreBounded(t *testing.T) {
	tracer, p, exporter := exporting()
	ctx, first := StartPass(t.Context(), tracer, Pass{Controller: "c", Key: "k", Root: "r"})
	for range 3 * mostSpansOfPass {
		_, span := Step(ctx, "decide")
		span.End()
	}
	Fail(first, errTest)
	first.End()
	if got := len(exporter.GetSpans()); got != mostSpansOfPass+1 {
		t.Errorf("%d spans of a pass, want %d and the first one", got, mostSpansOfPass)
	}
	late, span := StartPass(t.Context(), tracer, Pass{Controller: "c", Key: "k", Root: "r"})
	_, below := Step(late, "decide")
	span.End()
	below.End() // after its pass
	if len(p.open) != 0 {
		t.Errorf("%d spans are still open", len(p.open))
	}
	for range 2 * mostOpenSpans {
		StartPass(t.Context(), tracer, Pass{Controller: "c", Key: "k", Root: "r"})
	}
	if got := len(p.open); got != mostOpenSpans {
		t.Errorf("%d open spans, want at most %d", got, mostOpenSpans)
	}
}

// The passes of a stage, by any process, and what it waited for, are one trace, below the span of
// the one that ends it.
func TestStageIsOneTrace(t *testing.T) {
	stage := Stage{Name: "create machine", ID: "u"}
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u"}}
	at := func(seconds int64) time.Time { return time.Unix(1000+seconds, 0) }
	var all tracetest.SpanStubs
	for i := range 2 { // processes
		tracer, _, exporter := exporting()
		ctx, pass := StartPass(t.Context(), tracer, Pass{Controller: "machine", Key: "ns/m", Root: "r", Stage: stage})
		Fail(pass, errTest)
		if i == 1 {
			Waited(ctx, tracer, "r", Wait{Interval{at(5), at(9)}, stage, "a Node to appear"})
			EndStage(ctx, stage, "r", machine, Interval{at(1), at(20)}, "it failed")
		}
		pass.End()
		all = append(all, exporter.GetSpans()...)
	}
	for _, span := range all {
		if got := span.SpanContext.TraceID().String(); got != stage.TraceID() {
			t.Errorf("%s is in trace %s, want %s", span.Name, got, stage.TraceID())
		}
		isRoot, isBelow := span.SpanContext.SpanID() == stage.root().SpanID(), span.Parent.SpanID() == stage.root().SpanID()
		if wantRoot := span.Name == "create machine"; isRoot != wantRoot || !isRoot && !isBelow && span.Name != QueueSpan {
			t.Errorf("%s: root %t, below the root %t", span.Name, isRoot, isBelow)
		}
	}
	i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == stage.Name })
	if root := all[max(i, 0)]; len(all) != 6 || i < 0 || root.EndTime.Sub(root.StartTime) != 19*second ||
		root.Status.Description != "it failed" {
		t.Errorf("%d spans, and %s of %s: %+v", len(all), root.Name, root.EndTime.Sub(root.StartTime), root.Status)
	}
}
