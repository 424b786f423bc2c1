package session

import (
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// slotGaps finds out from the Leases that the watch shows when slots had no holder that lived. Every session does for all slots, so that the next
// holders know it, too.
type slotGaps struct {
	settings protocol.Settings
	renewed  map[string]time.Time // by session, as long as it lives or holds a slot
	slots    map[int]slotHolder
}

// slotHolder is the holder of a slot as last seen, "" for none, and since when.
type slotHolder struct {
	session string
	since   time.Time
}

func newSlotGaps(settings protocol.Settings) *slotGaps {
	return &slotGaps{settings: settings, renewed: map[string]time.Time{}, slots: map[int]slotHolder{}}
}

// seen returns the slot of a Lease, and the time in which it had no holder that lived before the one that the Lease shows; none if that was short, or
// is not known. All times are by the clock of the control cluster.
func (g *slotGaps) seen(lease *coordinationv1.Lease, now time.Time) (slot int, gap member.Gap) {
	holder := member.Holder(lease)
	if lease.Spec.RenewTime == nil {
		return 0, member.Gap{}
	}
	at := lease.Spec.RenewTime.Time
	if replica, is := member.ReplicaOfLease(g.settings.Fleet, lease.Name); is {
		g.renews(replica, holder, at)
		return 0, member.Gap{}
	}
	slot, is := member.SlotOfLease(g.settings.Fleet, lease.Name, g.settings.Slots)
	before, known := g.slots[slot]
	if !is || known && before.session == holder {
		return slot, member.Gap{}
	}
	served := g.renewed[before.session] // the zero Time for a session that was never seen
	if before.session == "" {
		served = before.since
	}
	if served.After(at) { // another client has cleared it, which is not the time of the Lease
		at = served
	}
	g.slots[slot] = slotHolder{holder, at}
	if holder == "" || served.IsZero() || at.Sub(served) < member.ShortestGap ||
		!at.Before(now.Add(member.ShortestGap)) { // one that ends in the future would keep machines from failing until then
		return slot, member.Gap{}
	}
	return slot, member.Gap{From: served, To: at}
}

// renews records the renewal of a session Lease. Earlier sessions of the replica that hold no slot are forgotten.
func (g *slotGaps) renews(replica, session string, at time.Time) {
	last, known := g.renewed[session]
	if !at.After(last) {
		return
	}
	if !known {
		holds := map[string]bool{}
		for _, slot := range g.slots {
			holds[slot.session] = true
		}
		maps.DeleteFunc(g.renewed, func(other string, _ time.Time) bool {
			of, _ := member.ReplicaOf(other)
			return of == replica && !holds[other]
		})
	}
	g.renewed[session] = at
}
