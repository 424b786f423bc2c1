package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// A slot whose holder released it is handed over, also if the watch has not shown the release: the Lease may have been read instead.
func TestArrivalsAreMeasuredByTheHolderThatWasReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		from               string
		handOver, takeOver int
	}{
		"released": {"", 1, 0},
		"held":     {"fleet-0_abcde", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := protocol.Settings{Fleet: "fleet", Slots: 8, Replica: "fleet-1", Session: "fleet-1_abcde"}
			a := newArrivals(s, noop.NewTracerProvider().Tracer(""), NewMetrics(registry))
			at := func(second int) member.Moment {
				return member.Moment{Wall: time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC), Monotonic: time.Duration(second) * time.Second}
			}
			lease := func(name string, annotations map[string]string) *coordinationv1.Lease {
				return &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("fleet-0_abcde")},
				}
			}
			a.seen(lease(member.SessionLeaseName("fleet", "fleet-0"), nil), at(1))
			a.seen(lease(member.SlotLeaseName("fleet", 3, 8), map[string]string{v1alpha1.AnnotationAssignedReplica: "fleet-1"}), at(2))
			a.acquired(protocol.Change{Slot: 3, Epoch: 2, Kind: protocol.Acquired, From: tc.from}, at(4))
			a.opened(t.Context(), 3, at(5))
			for metric, want := range map[string]int{"mcf_hand_over_seconds": tc.handOver, "mcf_take_over_seconds": tc.takeOver} {
				families, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					if f.GetName() == metric {
						if got := f.GetMetric()[0].GetHistogram().GetSampleCount(); got != uint64(want) {
							t.Errorf("%s has %d samples, want %d", metric, got, want)
						}
					}
				}
			}
		})
	}
}

// A hand-over and a take-over are traced with their stages, and the traceparent of the first span is that of the arrival.
func TestArrivalsAndDeparturesAreTracedWithTheirStages(t *testing.T) {
	s := protocol.Settings{Fleet: "fleet", Slots: 8, Replica: "fleet-1", Session: "fleet-1_abcde"}
	at := func(second int) member.Moment {
		return member.Moment{Wall: time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC), Monotonic: time.Duration(second) * time.Second}
	}
	slot := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: member.SlotLeaseName("fleet", 3, 8), Annotations: map[string]string{v1alpha1.AnnotationAssignedReplica: "fleet-1"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	const old = "fleet-0_abcde"
	for name, tc := range map[string]struct {
		run  func(a *arrivals, d *departures)
		want []string
	}{
		"a hand-over": {func(a *arrivals, _ *departures) {
			a.seen(slot(old), at(1))
			a.seen(slot(""), at(4))
			a.acquired(protocol.Change{Slot: 3, Epoch: 2, Kind: protocol.Acquired}, at(5))
			if a.opened(t.Context(), 3, at(7)) == "" {
				t.Error("a hand-over has no trace")
			}
		}, []string{"hand-over release 3s", "hand-over acquire 1s", "hand-over open 2s", "hand-over 6s"}},
		"a hand-over whose release was not seen": {func(a *arrivals, _ *departures) {
			a.seen(slot(old), at(1))
			a.acquired(protocol.Change{Slot: 3, Epoch: 2, Kind: protocol.Acquired}, at(5))
			a.opened(t.Context(), 3, at(7))
		}, []string{"hand-over acquire 4s", "hand-over open 2s", "hand-over 6s"}},
		"a take-over": {func(a *arrivals, _ *departures) {
			session := slot(old)
			session.Name = member.SessionLeaseName("fleet", "fleet-0")
			a.seen(session, at(1))
			a.seen(slot(old), at(16))
			a.acquired(protocol.Change{Slot: 3, Epoch: 2, Kind: protocol.Acquired, From: old}, at(17))
			a.opened(t.Context(), 3, at(19))
		}, []string{"take-over silence 15s", "take-over acquire 1s", "take-over open 2s", "take-over 18s"}},
		"a slot that had no holder": {func(a *arrivals, _ *departures) {
			a.seen(slot(""), at(1))
			a.acquired(protocol.Change{Slot: 3, Epoch: 1, Kind: protocol.Acquired}, at(2))
			if a.opened(t.Context(), 3, at(3)) != "" {
				t.Error("a slot that had no holder has a trace of its hand-over")
			}
		}, nil},
		"a release": {func(_ *arrivals, d *departures) {
			d.stopped(3, at(1))
			d.stopped(3, at(2))
			d.idle(3, at(4))
			d.lost(t.Context(), 3, 1, at(5))
		}, []string{"release-slot finish 3s", "release-slot write 1s", "release-slot 4s"}},
		"a release that was undone, and a loss": {func(_ *arrivals, d *departures) {
			d.stopped(3, at(1))
			d.resumed(3)
			d.idle(3, at(4))
			d.lost(t.Context(), 3, 1, at(5))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("")
			tc.run(newArrivals(s, tracer, NewMetrics(prometheus.NewRegistry())), newDepartures(s, tracer))
			if diff := cmp.Diff(tc.want, endedSpans(recorder)); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

// endedSpans returns name and duration of all spans that have ended, in that order.
func endedSpans(recorder *tracetest.SpanRecorder) (all []string) {
	for _, span := range recorder.Ended() {
		all = append(all, fmt.Sprintf("%s %s", span.Name(), span.EndTime().Sub(span.StartTime())))
	}
	return all
}
