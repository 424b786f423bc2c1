package session

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// arrivals measures how long slots take to arrive at this replica, from the Leases as the watch shows them: a hand-over from
// the assignment to this replica, a take-over from the last sign of life of the dead holder. No decision depends on it.
type arrivals struct {
	settings protocol.Settings
	tracer   trace.Tracer
	metrics  *Metrics

	alive map[string]member.Moment // last sign of life, by session
	slots map[int]arrival          // slots assigned to this replica that it has not acquired, or whose objects are not complete yet
}

// arrival is a slot that is assigned to this replica and is not open here yet.
type arrival struct {
	since  member.Moment // when this replica was first seen to be assigned
	holder string        // which session was seen to hold it then
	freed  bool          // the slot had no holder when it was acquired
	epoch  int64         // 0 until it is acquired

	// For the stages in traces; zero while they are not reached, or were not seen.
	released, got member.Moment // when the holder was first seen to be gone from the Lease, and when the slot was acquired
}

func newArrivals(s protocol.Settings, tracer trace.Tracer, m *Metrics) *arrivals {
	return &arrivals{settings: s, tracer: tracer, metrics: m, alive: map[string]member.Moment{}, slots: map[int]arrival{}}
}

// seen records a Lease that the watch showed.
func (a *arrivals) seen(lease *coordinationv1.Lease, at member.Moment) {
	holder := member.Holder(lease)
	if _, isSession := member.ReplicaOfLease(a.settings.Fleet, lease.Name); isSession && holder != "" {
		a.alive[holder] = at
		return
	}
	slot, isSlot := member.SlotOfLease(a.settings.Fleet, lease.Name, a.settings.Slots)
	if !isSlot || holder == a.settings.Session {
		return
	}
	if lease.Annotations[v1alpha1.AnnotationAssignedReplica] != a.settings.Replica {
		delete(a.slots, slot)
		return
	}
	coming, known := a.slots[slot]
	if !known {
		coming = arrival{since: at, holder: holder}
	}
	if holder == "" && coming.released.IsZero() {
		coming.released = at
	}
	a.slots[slot] = coming
}

// acquired records the epoch of a slot that has come, and whether its holder had released it. The watch may not have shown the
// release: the Lease may have been read instead.
func (a *arrivals) acquired(change protocol.Change, now member.Moment) {
	coming := a.slots[change.Slot]
	coming.epoch, coming.freed, coming.got = change.Epoch, change.From == "", now
	a.slots[change.Slot] = coming
}

func (a *arrivals) forget(slot int) { delete(a.slots, slot) }

// opened ends the arrival of a slot, and records how long it took. It returns the W3C traceparent of the arrival, "" when there is no
// trace of it. A slot that had no holder before is not measured.
func (a *arrivals) opened(ctx context.Context, slot int, now member.Moment) (traceparent string) {
	coming, known := a.slots[slot]
	delete(a.slots, slot)
	if !known || coming.holder == "" || coming.since.IsZero() {
		return ""
	}
	name, since, histogram := handOverSpan, coming.since, a.metrics.handOver
	if last, heard := a.alive[coming.holder]; !coming.freed && heard {
		name, since, histogram = takeOverSpan, last, a.metrics.takeOver
	}
	histogram.Observe(now.Since(since).Seconds())
	return a.trace(ctx, slot, arrived{arrival: coming, name: name, begun: since, now: now})
}

// arrived is an arrival that has ended.
type arrived struct {
	arrival

	name       string
	begun, now member.Moment
}

// stages returns the parts of the arrival, in their order.
func (a arrived) stages() []stage {
	if a.name == takeOverSpan {
		return []stage{{"silence", a.since}, {"acquire", a.got}, {"open", a.now}}
	}
	return []stage{{"release", a.released}, {"acquire", a.got}, {"open", a.now}}
}

// trace makes the spans of an arrival.
func (a *arrivals) trace(ctx context.Context, slot int, is arrived) (traceparent string) {
	return traceStages(ctx, a.tracer, is.name, is.begun, is.now, is.stages(),
		attribute.String("replica", a.settings.Replica), attribute.String("session", a.settings.Session),
		attribute.Int("slot", slot), attribute.Int64("epoch", is.epoch), attribute.String("from", is.holder))
}

// prune drops sessions without a sign of life for so long that their slots have another holder.
func (a *arrivals) prune(now member.Moment) {
	for session, last := range a.alive {
		if now.Since(last) > 20*a.settings.Config.TakeOver {
			delete(a.alive, session)
		}
	}
}
