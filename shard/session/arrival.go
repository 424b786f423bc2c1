package session

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// arrivals measures how long slots take to arrive at this replica: from when no live session held
// them, or a live one was to hand them over, until they are open here. No decision depends on it.
type arrivals struct {
	settings protocol.Settings
	tracer   trace.Tracer
	metrics  *Metrics
	holders  *holders
	slots    map[int]arrival // slots assigned to this replica that it has not acquired, or whose objects are not complete yet
}

// arrival is a slot that is assigned to this replica and is not open here yet.
type arrival struct {
	since member.Moment // when this replica was first seen to be assigned
	got   member.Moment // when the slot was acquired; zero until it is
	epoch int64         // 0 until it is acquired
}

func newArrivals(s protocol.Settings, tracer trace.Tracer, m *Metrics, h *holders) *arrivals {
	return &arrivals{settings: s, tracer: tracer, metrics: m, holders: h, slots: map[int]arrival{}}
}

// seen records a Lease that the watch showed.
func (a *arrivals) seen(lease *coordinationv1.Lease, at member.Moment) {
	slot, isSlot := member.SlotOfLease(a.settings.Fleet, lease.Name, a.settings.Slots)
	if !isSlot || member.Holder(lease) == a.settings.Session {
		return
	}
	if lease.Annotations[v1alpha1.AnnotationAssignedReplica] != a.settings.Replica {
		delete(a.slots, slot)
		return
	}
	if _, known := a.slots[slot]; !known {
		a.slots[slot] = arrival{since: at}
	}
}

// acquired records the epoch of a slot that has come.
func (a *arrivals) acquired(change protocol.Change, now member.Moment) {
	coming := a.slots[change.Slot]
	coming.epoch, coming.got = change.Epoch, now
	a.slots[change.Slot] = coming
}

func (a *arrivals) forget(slot int) { delete(a.slots, slot) }

// opened ends the arrival of a slot, and records how long it took. It returns the W3C traceparent
// of the arrival, "" when there is no trace of it. A slot without a known holder before is not
// measured.
func (a *arrivals) opened(ctx context.Context, slot int, now member.Moment) (traceparent string) {
	coming, known := a.slots[slot]
	delete(a.slots, slot)
	gap := a.holders.slots[slot].gap
	if !known || coming.since.IsZero() || gap.of == "" {
		return ""
	}
	name, begun, histogram := takeOverSpan, gap.since, a.metrics.takeOver
	stages := []stage{{"silence", coming.since}, {"acquire", coming.got}, {"open", now}}
	if !gap.died {
		name, begun, histogram = handOverSpan, member.Earliest(gap.since, coming.since), a.metrics.handOver
		stages[0] = stage{"release", gap.since}
		if begun == gap.since {
			stages[0] = stage{"assign", coming.since}
		}
	}
	histogram.Observe(now.Since(begun).Seconds())
	return traceStages(ctx, a.tracer, name, begun, now, stages,
		telemetry.ReplicaKey.String(a.settings.Replica), telemetry.SessionKey.String(a.settings.Session),
		telemetry.SlotKey.Int(slot), telemetry.EpochKey.Int64(coming.epoch), telemetry.FromKey.String(gap.of))
}
