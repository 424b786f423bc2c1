package protocol

import (
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// proof is the result of live reads of a session's Lease.
type proof struct {
	// step is when the first of them was requested, or the last that has shown the session alive.
	step uint64
	// dead is when the session is proven dead; zero: it is not.
	dead member.Moment
	// pending is true while a read is not answered, and again is when the next may be sent.
	pending bool
	again   member.Moment
	// waiting are the slots to decide when the read is answered.
	waiting slotSet
}

// proofs records what live reads have proven of sessions that slot Leases name.
type proofs struct {
	*shared

	table    *table
	sessions map[string]*proof
}

// isDead reports whether a session that a slot Lease names is proven dead: by a live read of its
// session Lease that began after it was seen there. One read is enough for all slots of the
// session. What the watch shows is only a reason to read.
func (ps *proofs) isDead(now member.Moment, s *slot, session string) bool {
	replica, ok := member.ReplicaOf(session)
	if !ok {
		return true // no session can have this name
	}
	p := ps.sessions[session]
	if p == nil {
		p = &proof{waiting: newSlotSet(len(ps.slots))}
		ps.sessions[session] = p
	}
	if !p.dead.IsZero() && p.step >= s.holderStep {
		if now.Since(p.dead) < 0 {
			ps.laterFor(s, p.dead)
			return false
		}
		return true
	}
	if p.pending {
		p.waiting.set(s.number, true)
		return false
	}
	if _, mayBeDead := ps.others.Death(now, session); !mayBeDead {
		return false
	}
	if now.Since(p.again) < 0 {
		ps.laterFor(s, p.again)
		return false
	}
	p.pending = true
	p.waiting.set(s.number, true)
	ps.send(member.Request{Verb: member.Get, Name: member.SessionLeaseName(ps.settings.Fleet, replica), Need: member.NeedNothing},
		question{about: aboutProof, session: session})
	return false
}

// handleProof applies a live read of a session Lease. The time that a session without a Lease has
// left is counted from this read, and from no earlier observation: in between it may have held its
// Lease, and renewed it.
func (ps *proofs) handleProof(now member.Moment, q question, reply member.Reply) {
	p := ps.sessions[q.session]
	p.pending, p.dead, p.step, p.again = false, member.Moment{}, q.step, now.Add(retryAfter)
	for number := p.waiting.next(0); number >= 0; number = p.waiting.next(number + 1) {
		p.waiting.set(number, false)
		ps.touch(ps.slots[number])
	}
	switch reply.Outcome {
	case member.Done, member.NotFound:
		switch ps.others.Judge(now, q.session, reply.Lease) {
		case member.Alive:
		case member.Expiring:
			p.dead = now.Add(ps.settings.Config.TakeOver)
		case member.Dead:
			p.dead = now
		}
	case member.Conflict, member.Exists, member.Unanswered, member.Refused:
	}
}

// quarantined reports whether a slot Lease is so new that a session may hold an earlier one. The
// quarantine ends some time after the leader's list was first seen on it, so that every session
// that is not listed has passed its fence, and when all listed ones have confirmed that they have
// nothing of the slot in flight, or are dead.
func (ps *proofs) quarantined(now member.Moment, s *slot) bool {
	if !s.genuine {
		return true
	}
	if len(s.quarantine) == 0 {
		return false
	}
	if end := s.listed.Add(ps.settings.Config.TakeOver); now.Since(end) < 0 {
		ps.laterFor(s, end)
		return true
	}
	open := false
	for _, session := range s.quarantine {
		if session != ps.settings.Session && !ps.table.confirmed(s, session) && !ps.isDead(now, s, session) {
			open = true
		}
	}
	return open
}

func latest(a, b member.Moment) member.Moment {
	if a.Monotonic < b.Monotonic {
		return b
	}
	return a
}
