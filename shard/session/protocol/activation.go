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
	// reading: it holds its session Lease and reads all other Leases before it acts, because another session may have acquired
	// its slots meanwhile.
	reading
	// active: it may act.
	active
)

// activation is the state of how a session begins to act and how it stops at the fence.
type activation struct {
	activity activity
	// stuck is the reason why the session empties its Lease: its lists fail, or it cannot release a slot; "" if it does not.
	// begun is when reading began.
	stuck string
	begun member.Moment
	// since is the step in which reading began; rereading is true while the read is not answered, and again is when to repeat it.
	since     uint64
	rereading bool
	again     member.Moment
	// fenced is when the Suspended change was returned, restless its ticket while requests may still be in flight since then; 0:
	// none are.
	fenced   member.Moment
	restless uint64
	// acted is true once the session has been active. Its settings are those of the fleet: it recorded them on its session Lease,
	// and the list of all Leases that it read after that showed no others.
	acted bool
}

// suspend acts on the passing of the fence. It ends nothing: if a later renewal succeeds, no other session has taken the Lease.
func (r *Session) suspend(now member.Moment) {
	fence, holds := r.own.Fence()
	if r.activity == passive || holds && !now.Reached(fence) {
		return
	}
	if r.activity == active && holds {
		r.fenced, r.restless = now, r.ticket()
		r.change(Change{Slot: Everything, Kind: Suspended, Ticket: r.restless})
	}
	r.activity = passive
	r.touchAll()
	r.others.Interrupt() // what has prevented our renewals may also have prevented them from being observed
}

// activate lets a session act that holds its session Lease, once it has read all Leases live. It ends a process that cannot stop
// what is in flight, because other sessions are about to take over its slots.
func (r *Session) activate(now member.Moment) {
	fence, holds := r.own.Fence()
	if r.activity == passive && holds && !now.Reached(fence) {
		r.activity, r.since, r.again, r.begun = reading, r.steps, member.Moment{}, now
	}
	switch {
	case r.activity == passive && r.restless != 0 && now.Reached(r.fenced.Add(r.settings.Config.ExitAfterFence)):
		r.exit(Exit{Reason: ReasonInFlight, Message: fmt.Sprintf(
			"expected nothing in flight %v after the fence, got no confirmation of that; start a new session", r.settings.Config.ExitAfterFence)})
	case r.isStranded() && now.Reached(r.leavingAt.Add(r.settings.Config.HandOverTimeout)):
		r.exit(Exit{Reason: ReasonLeft, Message: "expected to hand over all slots before leaving, got no renewal before the " +
			"fence passed; other sessions take over its slots"})
	case r.cannotRead(now):
		r.giveUp(now)
	case r.activity == reading && !r.rereading && now.Reached(r.again):
		r.rereading = true
		r.send(member.Request{Verb: member.List, Need: member.NeedNothing}, question{about: aboutReread})
	}
}

// cannotRead reports whether the session has renewed its Lease for a long time without being able to list the others, or had
// given up before it was suspended and has nothing in flight.
func (r *Session) cannotRead(now member.Moment) bool {
	return r.activity == reading && (r.stuck != "" && r.restless == 0 || now.Reached(r.begun.Add(r.settings.Config.BlindAfter)))
}

// giveUp empties the session Lease, so that other sessions take over the slots at once; with requests in flight it ends the
// process instead.
func (r *Session) giveUp(now member.Moment) {
	if r.stuck == "" {
		r.stuck = fmt.Sprintf("expected a list of the fleet's Leases within %v of holding the session Lease, got none; "+
			"check the connection to the API server, and start a new session", r.settings.Config.BlindAfter)
	}
	if r.restless != 0 {
		r.exit(Exit{Reason: ReasonInFlight, Message: r.stuck})
		return
	}
	r.own.Release(now)
}

// isStranded reports whether the session is leaving, has nothing in flight, and cannot hand over anything.
func (r *Session) isStranded() bool {
	return r.notes.Leaving && r.activity == passive && r.restless == 0
}

// activationWake returns when suspend or activate must run next; the zero Moment if there is no such time.
func (r *Session) activationWake() (at member.Moment) {
	fence, holds := r.own.Fence()
	switch {
	case r.activity == passive && r.restless != 0:
		return r.fenced.Add(r.settings.Config.ExitAfterFence)
	case r.isStranded():
		return r.leavingAt.Add(r.settings.Config.HandOverTimeout)
	case r.activity == passive || !holds:
		return member.Moment{}
	case r.activity == reading && !r.rereading:
		return member.Earliest(fence, r.again, r.begun.Add(r.settings.Config.BlindAfter))
	case r.activity == reading:
		return member.Earliest(fence, r.begun.Add(r.settings.Config.BlindAfter))
	}
	return fence
}

// handleReread applies the list of all Leases that is read before the session acts (again).
func (r *Session) handleReread(now member.Moment, q question, reply member.Reply) {
	r.rereading = false
	if r.activity != reading || q.step < r.since {
		return
	}
	if reply.Outcome != member.Done {
		r.again = now.Add(retryAfter)
		return
	}
	r.observeList(now, reply.Leases, q.step)
	r.activity, r.restless, r.acted = active, 0, true
	r.touchAll()
	for _, s := range r.slots {
		if !s.clearing.IsZero() {
			s.clearing = now
		}
		switch s.phase {
		case held:
			r.opens(now, s)
			r.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Resumed})
		case stopping, cancelled:
			if s.busy { // its contexts were cancelled at the fence, and an answer to an earlier ticket does not answer that
				r.cancel(now, s)
			}
		case free, releasing:
		}
	}
}

// ticket returns a ticket that was never used.
func (r *Session) ticket() uint64 {
	r.tickets++
	return r.tickets
}

func (r *Session) change(c Change) { r.out.Changes = append(r.out.Changes, c) }

// handleIdle records that what a change has ended is not in flight any more. An answer to an earlier change is ignored: something
// may have been started in between.
func (r *Session) handleIdle(e Idle) {
	if e.Slot == Everything {
		if e.Ticket == r.restless {
			r.restless = 0
		}
		return
	}
	if e.Slot < 0 || e.Slot >= len(r.slots) {
		return
	}
	if s := r.slots[e.Slot]; s.busy && s.phase != held && s.ticket == e.Ticket {
		s.busy = false
		r.touch(s)
	}
}
