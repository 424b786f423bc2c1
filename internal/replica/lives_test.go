package replica

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// TestSampledLivesAreWhole: of the MachineDeployments some are traced, with their MachineSets and
// machines, by each of three owners: one hands its slots over, another is killed. Of the others
// nothing is traced, and each link leads to a span.
func TestSampledLivesAreWhole(t *testing.T) {
	t.Parallel()
	o := replicaOptions()
	synctest.Test(t, func(t *testing.T) {
		const ratio = 0.4
		r := newTrial(t, o, 1, nil)
		defer r.end()
		recorder := tracetest.NewSpanRecorder()
		r.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(telemetry.Lifetimes(ratio)),
			sdktrace.WithIDGenerator(telemetry.StageIDs{}))
		r.createUnmanaged()
		r.createClass("a")
		for _, name := range []string{"d-0", "d-1", "d-2", "d-3", "d-4", "d-5"} {
			r.putRoot("a", name, 1)
		}
		served := func() bool { return r.missing() == "" && r.unowned() == 0 }
		r.oracle.lost = []string{"fleet-0", "fleet-1"} // they are not restarted
		first := r.start("fleet-0")
		r.until("all machines run", served)
		second := r.start("fleet-1")
		first.quit()
		r.until("the slots are handed over", func() bool { return !first.isAlive() && served() })
		r.run(time.Minute, nil) // its passes
		second.crash()
		third := r.start("fleet-2")
		r.until("the slots are taken over", served)
		r.run(time.Minute, nil)

		spans := spansOf{recorder.Ended()}
		spans.onlyOf(t, ratio)
		sampled := 0
		for _, d := range r.control.List("machinedeployments") {
			if !telemetry.IsChosen(string(d.GetUID()), ratio) {
				continue
			}
			sampled++
			for _, p := range []*process{first, second, third} {
				spans.finds(t, "reconcile machinedeployment", "mcf.session", p.session, "mcf.key", "a/"+d.GetName())
			}
			spans.isOneTrace(t, "roll out", "reconcile machineset", "mcf.machinedeployment.name", d.GetName())
			for _, resource := range []string{"machineset", "machine"} {
				for _, child := range r.control.List(resource + "s") {
					if child.GetLabels()["root"] != d.GetName() {
						continue
					}
					for _, p := range []*process{first, second, third} {
						spans.linked(t, child, "reconcile "+resource, "mcf.session", p.session, "mcf.key", "a/"+child.GetName())
					}
					if resource == "machine" {
						spans.isOneTrace(t, "create machine", "driver.CreateMachine", "mcf.machine.name", child.GetName())
						spans.finds(t, "driver.CreateMachine", "mcf.machine.name", child.GetName())
					}
				}
			}
			spans.finds(t, "hand-over", "mcf.slot", slotOf(d), "mcf.from", first.session)
			spans.finds(t, "take-over", "mcf.slot", slotOf(d), "mcf.from", second.session)
		}
		if all := len(r.roots); sampled == 0 || sampled == all {
			t.Fatalf("%d of %d roots are sampled; choose another ratio", sampled, all)
		}
	})
}

// spansOf are the spans that have ended.
type spansOf struct{ all []sdktrace.ReadOnlySpan }

// find returns a span with the name and attributes, which are pairs of keys and values, that passes
// a check; nil when there is none.
func (s spansOf) find(check func(sdktrace.ReadOnlySpan) bool, name string, pairs ...string) sdktrace.ReadOnlySpan {
	for _, span := range s.all {
		found := span.Name() == name && check(span)
		for i := 0; i < len(pairs) && found; i += 2 {
			found = attributeOf(span, pairs[i]) == pairs[i+1]
		}
		if found {
			return span
		}
	}
	return nil
}

func (s spansOf) finds(t *testing.T, name string, pairs ...string) {
	t.Helper()
	if s.find(func(sdktrace.ReadOnlySpan) bool { return true }, name, pairs...) == nil {
		t.Errorf("there is no span %s with %v", name, pairs)
	}
}

// isOneTrace expects one root span of a stage, with attributes, in whose trace there is a span of
// another name.
func (s spansOf) isOneTrace(t *testing.T, stage, other string, pairs ...string) {
	t.Helper()
	root := s.find(func(sdktrace.ReadOnlySpan) bool { return true }, stage, pairs...)
	if root == nil {
		t.Errorf("there is no span %s with %v", stage, pairs)
		return
	}
	isBelow := func(span sdktrace.ReadOnlySpan) bool {
		return span.SpanContext().TraceID() == root.SpanContext().TraceID()
	}
	if s.find(isBelow, other) == nil {
		t.Errorf("the trace of %s with %v has no span %s", stage, pairs, other)
	}
	if another := s.find(func(span sdktrace.ReadOnlySpan) bool { return span != root }, stage, pairs...); another != nil {
		t.Errorf("there are two spans %s with %v", stage, pairs)
	}
}

// linked expects a span that is linked to the one which has created an object.
func (s spansOf) linked(t *testing.T, child *apiserver.Object, name string, pairs ...string) {
	t.Helper()
	origin := child.GetAnnotations()[v1alpha1.AnnotationTraceparent]
	isLinked := func(span sdktrace.ReadOnlySpan) bool {
		for _, link := range span.Links() {
			if strings.Contains(origin, link.SpanContext.TraceID().String()+"-"+link.SpanContext.SpanID().String()) {
				return true
			}
		}
		return false
	}
	if s.find(isLinked, name, pairs...) == nil {
		t.Errorf("there is no span %s with %v that is linked to %q", name, pairs, origin)
	}
}

// onlyOf expects spans of roots that are sampled only, and that each link leads to a span.
func (s spansOf) onlyOf(t *testing.T, ratio float64) {
	t.Helper()
	known, links := map[string]bool{}, 0
	for _, span := range s.all {
		known[span.SpanContext().TraceID().String()+span.SpanContext().SpanID().String()] = true
	}
	for _, span := range s.all {
		if root := attributeOf(span, "mcf.root.uid"); root != "" && !telemetry.IsChosen(root, ratio) {
			t.Errorf("%s of %s is traced, and its root %s is not sampled", span.Name(), attributeOf(span, "mcf.key"), root)
		}
		for _, link := range span.Links() {
			links++
			if !known[link.SpanContext.TraceID().String()+link.SpanContext.SpanID().String()] {
				t.Errorf("%s of %s is linked to a span that there is not", span.Name(), attributeOf(span, "mcf.key"))
			}
		}
	}
	if links == 0 {
		t.Error("there are no links")
	}
}

// attributeOf returns an attribute of a span as text; "" when it has none.
func attributeOf(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}
