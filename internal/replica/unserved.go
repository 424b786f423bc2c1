package replica

import (
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// unserved records the last times in which no progress was possible: without a replica, and without
// a holder of a slot. They count as outages.
type unserved struct {
	clock clock.PassiveClock // of the control cluster
	all   atomic.Pointer[reach.Fact]
	slots sync.Map // reach.Fact, by slot label
}

// outages returns what this process knows of the API servers, and of times without a replica.
func (d *deps) outages() target.Servers {
	return target.Servers{
		Control:      d.known(d.controlServer, d.wall),
		Unserved:     d.unserved.last,
		UnservedSlot: d.unserved.lastOf,
		SwitchedOff:  d.slots.switches.Outage,
	}
}

// last returns the last time without a replica.
func (u *unserved) last() reach.Fact {
	if known := u.all.Load(); known != nil {
		return u.past(*known)
	}
	return reach.Fact{}
}

// lastOf returns the last time without a holder of a slot.
func (u *unserved) lastOf(slot string) reach.Fact {
	known, _ := u.slots.Load(slot)
	fact, _ := known.(reach.Fact) // none
	return u.past(fact)
}

// past returns a time that was not served, or none if that ends in the future, as after the clock
// was set back: it would keep machines from failing until then.
func (u *unserved) past(fact reach.Fact) reach.Fact {
	if fact.Back.After(u.clock.Now().Add(member.ShortestGap)) {
		return reach.Fact{}
	}
	return fact
}

// note has a time without a replica count as an outage: nothing that depends on it could make
// progress.
func (u *unserved) note(gap member.Gap) {
	u.all.Store(&reach.Fact{From: gap.From, Back: gap.To})
}

// noteSlot has a time in which a slot had no holder count as an outage for all that is in it.
func (u *unserved) noteSlot(slot int, gap member.Gap) {
	u.slots.Store(strconv.Itoa(slot), reach.Fact{From: gap.From, Back: gap.To})
}
