package protocol

import (
	"fmt"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// activity says whether the session may act.
type activity int

const (
	// passive: it does not hold its session Lease yet, or its fence has passed.
	passive activity = iota
	// reading: it holds its session Lease, and reads all others before it acts: its slots may have been taken meanwhile.
	reading
	// active: it may act.
	active
)

// activation is how a session comes to act, and how it stops at the fence.
type activation struct {
	activity activity
	// stuck is why the session gives its Lease up, because its lists fail; "" if it does not. begun is when reading began.
	stuck string
	begun member.Moment
	// since is the step in which reading began; rereading says that the read is not answered, and again when to repeat it.
	since     uint64
	rereading bool
	again     member.Moment
	// fenced is when the passing of the fence was told, and restless the ticket for what may be in flight since; 0: nothing is.
	fenced   member.Moment
	restless uint64
	// acted says that the session has been active. Its settings are those of the fleet: it recorded them on its session Lease,
	// and the list of all Leases that it read after that showed no others.
	acted bool
}

// suspend notices that the fence has passed. That kills nothing: if a later renewal succeeds, nobody has taken the Lease.
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
	r.others.Interrupt() // whatever has kept us from renewing may have kept our renewals from coming back
}

// activate has a session act that holds its session Lease, as soon as it has read the Leases of its slots live. It ends
// the process that cannot stop what is in flight: others are about to take its slots.
func (r *Session) activate(now member.Moment) {
	fence, holds := r.own.Fence()
	if r.activity == passive && holds && !now.Reached(fence) {
		r.activity, r.since, r.again, r.begun = reading, r.steps, member.Moment{}, now
	}
	switch {
	case r.activity == passive && r.restless != 0 && now.Reached(r.fenced.Add(r.settings.Config.ExitAfterFence)):
		r.exit(Exit{Reason: ReasonInFlight, Message: fmt.Sprintf(
			"expected nothing in flight %v after the fence, got no word of that; start a new session", r.settings.Config.ExitAfterFence)})
	case r.isStranded() && now.Reached(r.leavingAt.Add(r.settings.Config.HandOverTimeout)):
		r.exit(Exit{Reason: ReasonLeft, Message: "the session leaves, and its slots could not be handed over: its fence has passed"})
	case r.cannotRead(now):
		r.giveUp(now)
	case r.activity == reading && !r.rereading && now.Reached(r.again):
		r.rereading = true
		r.ask(member.Request{Verb: member.List, Need: member.NeedNothing}, question{about: aboutReread})
	}
}

// cannotRead reports whether the session has renewed its Lease for long and could not list the others, or had given up before it
// was suspended and has nothing in flight.
func (r *Session) cannotRead(now member.Moment) bool {
	return r.activity == reading && (r.stuck != "" && r.restless == 0 || now.Reached(r.begun.Add(r.settings.Config.BlindAfter)))
}

// giveUp has the session empty its Lease, so that others take its slots at once; or ends it with what is in flight.
func (r *Session) giveUp(now member.Moment) {
	if r.stuck == "" {
		r.stuck = fmt.Sprintf("expected a list of the fleet's Leases within %v of holding the session Lease, got none; "+
			"look at the way to the API server, and start a new session", r.settings.Config.BlindAfter)
	}
	if r.restless != 0 {
		r.exit(Exit{Reason: ReasonInFlight, Message: r.stuck})
		return
	}
	r.own.Release(now)
}

// isStranded says that the session is to leave, has nothing in flight, and can hand nothing over.
func (r *Session) isStranded() bool {
	return r.notes.Leaving && r.activity == passive && r.restless == 0
}

// activationWake returns when suspend or activate have something to do.
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

// takeReread takes in the list of all Leases before the session acts (again).
func (r *Session) takeReread(now member.Moment, q question, reply member.Reply) {
	r.rereading = false
	if r.activity != reading || q.step < r.since {
		return
	}
	if reply.Outcome != member.Done {
		r.again = now.Add(retryAfter)
		return
	}
	r.takeAll(now, reply.Leases, q.step)
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
			if s.busy { // its contexts were cancelled at the fence, and the answer to an earlier ticket is none to that
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

// takeIdle takes in that nothing is in flight any more of what a change has ended. An answer to an earlier change is none:
// something may have been started in between.
func (r *Session) takeIdle(e Idle) {
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
