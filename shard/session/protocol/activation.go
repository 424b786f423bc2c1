package protocol

import (
	"fmt"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// activity is whether the session may act.
type activity int

const (
	// passive: it does not hold its session Lease yet, or its fence has passed.
	passive activity = iota
	// reading: it holds its session Lease and reads all other Leases before it acts, because another
	// session may have acquired its slots meanwhile.
	reading
	// active: it may act.
	active
)

// activation decides when a session begins to act, and how it stops at the fence.
type activation struct {
	*shared

	activity activity
	// stuck is the reason why the session empties its Lease: its lists fail, or it cannot release a
	// slot; "" if it does not. begun is when reading began.
	stuck string
	begun member.Moment
	// since is the step in which reading began; rereading is true while the read is not answered, and
	// again is when to repeat it.
	since     uint64
	rereading bool
	again     member.Moment
	// fenced is when the Suspended change was returned, restless its ticket while requests may still
	// be in flight since then; 0: none are.
	fenced   member.Moment
	restless uint64
	// acted is true once the session has been active. Its settings are those of the fleet: it recorded
	// them on its session Lease, and the list of all Leases that it read after that showed no others.
	acted bool
}

// suspend acts on the passing of the fence. It ends nothing: if a later renewal succeeds, no other
// session has taken the Lease.
func (a *activation) suspend(now member.Moment) {
	fence, holds := a.own.Fence()
	if a.activity == passive || holds && !now.Reached(fence) {
		return
	}
	if a.activity == active && holds {
		a.fenced, a.restless = now, a.ticket()
		a.change(Change{Slot: Everything, Kind: Suspended, Ticket: a.restless})
	}
	a.activity = passive
	a.touchAll()
	a.others.Interrupt() // what has prevented our renewals may also have prevented them from being observed
}

// activate lets a session act that holds its session Lease, once it has read all Leases live. It
// ends a process that cannot stop what is in flight, because other sessions are about to take over
// its slots.
func (a *activation) activate(now member.Moment) {
	fence, holds := a.own.Fence()
	if a.activity == passive && holds && !now.Reached(fence) {
		a.activity, a.since, a.again, a.begun = reading, a.steps, member.Moment{}, now
	}
	switch {
	case a.activity == passive && a.restless != 0 && now.Reached(a.fenced.Add(a.settings.Config.ExitAfterFence)):
		a.exit(Exit{Reason: ReasonInFlight, Message: fmt.Sprintf(
			"expected nothing in flight %v after the fence, got no confirmation of that; start a new session", a.settings.Config.ExitAfterFence)})
	case a.isStranded() && now.Reached(a.leavingAt.Add(a.settings.Config.HandOverTimeout)):
		a.exit(Exit{Reason: ReasonLeft, Message: "expected to hand over all slots before leaving, got no renewal before the " +
			"fence passed; other sessions take over its slots"})
	case a.cannotRead(now):
		a.stop(now)
	case a.activity == reading && !a.rereading && now.Reached(a.again):
		a.rereading = true
		a.send(member.Request{Verb: member.List, Need: member.NeedNothing}, question{about: aboutReread})
	}
}

// cannotRead reports whether the session has renewed its Lease for a long time without being able
// to list the others, or had given up before it was suspended and has nothing in flight.
func (a *activation) cannotRead(now member.Moment) bool {
	return a.activity == reading && (a.stuck != "" && a.restless == 0 || now.Reached(a.begun.Add(a.settings.Config.BlindAfter)))
}

// stop empties the session Lease, so that other sessions take over the slots at once; with
// requests in flight it ends the process instead.
func (a *activation) stop(now member.Moment) {
	if a.stuck == "" {
		a.stuck = fmt.Sprintf("expected a list of the fleet's Leases within %v of holding the session Lease, got none; "+
			"check the connection to the API server, and start a new session", a.settings.Config.BlindAfter)
	}
	if a.restless != 0 {
		a.exit(Exit{Reason: ReasonInFlight, Message: a.stuck})
		return
	}
	a.own.Release(now)
}

// isStranded reports whether the session is leaving, has nothing in flight, and cannot hand over
// anything.
func (a *activation) isStranded() bool {
	return a.isLeaving() && a.activity == passive && a.restless == 0
}

// wakeAt returns when suspend or activate must run next; the zero Moment if there is no such time.
func (a *activation) wakeAt() (at member.Moment) {
	fence, holds := a.own.Fence()
	switch {
	case a.activity == passive && a.restless != 0:
		return a.fenced.Add(a.settings.Config.ExitAfterFence)
	case a.isStranded():
		return a.leavingAt.Add(a.settings.Config.HandOverTimeout)
	case a.activity == passive || !holds:
		return member.Moment{}
	case a.activity == reading && !a.rereading:
		return member.Earliest(fence, a.again, a.begun.Add(a.settings.Config.BlindAfter))
	case a.activity == reading:
		return member.Earliest(fence, a.begun.Add(a.settings.Config.BlindAfter))
	}
	return fence
}

// maySend reports whether a request for the slot Lease can be sent now.
func (a *activation) maySend(now member.Moment, s *slot) bool {
	switch {
	case s.pending || a.activity != active:
		return false
	case !now.Reached(s.retry):
		a.deadlineFor(now, s, s.retry)
		return false
	case !a.hasRoom():
		a.blocked.set(s.number, true) // an answer makes room
		return false
	}
	return true
}

// stopWhenIdle empties the session Lease if the session has stopped and nothing of any slot is
// in flight.
func (a *activation) stopWhenIdle(now member.Moment) {
	if a.stuck == "" || a.activity != active {
		return
	}
	for _, s := range a.slots {
		if s.busy {
			return
		}
	}
	a.own.Release(now)
	a.touchAll() // the session is entitled to none of them any more
}

// hasRead records the outcome of a list of all Leases that is read before the session acts, and
// reports whether the session may act once the list is applied.
func (a *activation) hasRead(now member.Moment, q question, outcome member.Outcome) bool {
	a.rereading = false
	if a.activity != reading || q.step < a.since {
		return false
	}
	if outcome != member.Done {
		a.again = now.Add(retryAfter)
		return false
	}
	return true
}

// begin has the session act.
func (a *activation) begin() {
	a.activity, a.restless, a.acted = active, 0, true
	a.touchAll()
}
