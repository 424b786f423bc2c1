package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// Hand-overs and take-overs are measured from when no live session held the slot, or it was to be
// handed over, and are traced with their stages; the traceparent of the first span is that of the
// arrival.
func TestArrivalsAndDeparturesAreTracedWithTheirStages(t *testing.T) {
	const old = "fleet-0_abcde"
	for name, tc := range map[string]struct {
		run  func(w *watched)
		want []string
	}{
		"a hand-over": {func(w *watched) {
			w.slot(1, old, "fleet-1")
			w.slot(4, "", "fleet-1")
			w.arrives(5, 7, "")
		}, []string{"hand-over release 3s", "hand-over acquire 1s", "hand-over open 2s", "hand-over 6s"}},
		"a hand-over that waits for an assignment": {func(w *watched) {
			w.slot(1, old, "fleet-0")
			w.slot(2, "", "fleet-0")
			w.slot(10, "", "fleet-1")
			w.arrives(11, 12, "")
		}, []string{"hand-over assign 8s", "hand-over acquire 1s", "hand-over open 1s", "hand-over 10s"}},
		"a take-over": {func(w *watched) {
			w.lives(1, old)
			w.slot(2, old, "fleet-0")
			w.slot(16, old, "fleet-1")
			w.arrives(17, 19, old)
		}, []string{"take-over silence 15s", "take-over acquire 1s", "take-over open 2s", "take-over 18s"}},
		"a take-over of a slot that was released for a dead session": {func(w *watched) {
			w.lives(1, old)
			w.slot(2, old, "fleet-0")
			w.slot(17, "", "fleet-1")
			w.arrives(18, 19, "")
		}, []string{"take-over silence 16s", "take-over acquire 1s", "take-over open 1s", "take-over 18s"}},
		"a take-over by the next session of the same replica": {func(w *watched) {
			w.lives(1, "fleet-1_aaaaa")
			w.slot(2, "fleet-1_aaaaa", "fleet-1")
			w.lives(9, "fleet-1_abcde")
			w.slot(9, "", "fleet-1")
			w.arrives(10, 11, "")
		}, []string{"take-over silence 1s", "take-over acquire 8s", "take-over open 1s", "take-over 10s"}},
		"a slot that had no holder": {func(w *watched) {
			w.slot(1, "", "fleet-1")
			w.arrives(2, 3, "")
		}, nil},
		"a release": {func(w *watched) {
			w.departures.stopped(3, w.at(1))
			w.departures.stopped(3, w.at(2))
			w.departures.idle(3, w.at(4))
			w.departures.lost(t.Context(), 3, 1, w.at(5))
		}, []string{"release-slot finish 3s", "release-slot write 1s", "release-slot 4s"}},
		"a release that was undone, and a loss": {func(w *watched) {
			w.departures.stopped(3, w.at(1))
			w.departures.resumed(3)
			w.departures.idle(3, w.at(4))
			w.departures.lost(t.Context(), 3, 1, w.at(5))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("")
			s := protocol.Settings{Config: member.DefaultConfig(), Fleet: "fleet", Slots: 8, Replica: "fleet-1", Session: "fleet-1_abcde"}
			w := &watched{t: t, settings: s}
			h := newHolders(s, w.at(0))
			w.arrivals, w.departures = newArrivals(s, tracer, NewMetrics(prometheus.NewRegistry()), h), newDepartures(s, tracer)
			tc.run(w)
			if diff := cmp.Diff(tc.want, endedSpans(recorder)); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

// watched contains what a session observes of slot 3.
type watched struct {
	t          *testing.T
	settings   protocol.Settings
	arrivals   *arrivals
	departures *departures
}

func (*watched) at(second int) member.Moment {
	return member.Moment{Wall: time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC), Monotonic: time.Duration(second) * time.Second}
}

func (w *watched) seen(second int, lease *coordinationv1.Lease, holder string) {
	renewed := metav1.NewMicroTime(w.at(second).Wall)
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed}
	w.arrivals.holders.seen(lease, w.at(second))
	w.arrivals.seen(lease, w.at(second))
}

// slot shows the slot Lease.
func (w *watched) slot(second int, holder, assigned string) {
	w.seen(second, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: member.SlotLeaseName("fleet", 3, 8), Annotations: map[string]string{v1alpha1.AnnotationAssignedReplica: assigned},
	}}, holder)
}

// lives shows the renewal of a session Lease.
func (w *watched) lives(second int, session string) {
	replica, _ := member.ReplicaOf(session)
	w.seen(second, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: member.SessionLeaseName("fleet", replica)}}, session)
}

// arrives acquires the slot from a session, and opens it.
func (w *watched) arrives(acquired, opened int, from string) {
	w.slot(acquired, w.settings.Session, w.settings.Replica)
	w.arrivals.acquired(protocol.Change{Slot: 3, Epoch: 2, Kind: protocol.Acquired, From: from}, w.at(acquired))
	if traced := w.arrivals.opened(w.t.Context(), 3, w.at(opened)) != ""; traced != (w.arrivals.holders.slots[3].gap.of != "") {
		w.t.Errorf("the arrival has a trace: %t", traced)
	}
}

// endedSpans returns name and duration of all spans that have ended, in that order.
func endedSpans(recorder *tracetest.SpanRecorder) (all []string) {
	for _, span := range recorder.Ended() {
		all = append(all, fmt.Sprintf("%s %s", span.Name(), span.EndTime().Sub(span.StartTime())))
	}
	return all
}
