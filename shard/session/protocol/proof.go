package protocol

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

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

// isDead reports whether a session that a slot Lease names is proven dead: by a live read of its session Lease that began after
// it was seen there. One read is enough for all slots of the session. What the watch shows is only a reason to read.
func (r *Session) isDead(now member.Moment, s *slot, session string) bool {
	replica, ok := member.ReplicaOf(session)
	if !ok {
		return true // no session can have this name
	}
	p := r.proofs[session]
	if p == nil {
		p = &proof{waiting: newSlotSet(len(r.slots))}
		r.proofs[session] = p
	}
	if !p.dead.IsZero() && p.step >= s.holderStep {
		if now.Since(p.dead) < 0 {
			r.laterFor(s, p.dead)
			return false
		}
		return true
	}
	if p.pending {
		p.waiting.set(s.number, true)
		return false
	}
	if _, looks := r.others.Death(now, session); !looks {
		return false
	}
	if now.Since(p.again) < 0 {
		r.laterFor(s, p.again)
		return false
	}
	p.pending = true
	p.waiting.set(s.number, true)
	r.send(member.Request{Verb: member.Get, Name: member.SessionLeaseName(r.settings.Fleet, replica), Need: member.NeedNothing},
		question{about: aboutProof, session: session})
	return false
}

// handleProof applies a live read of a session Lease. The time that a session without a Lease has left is counted from this read,
// and from no earlier observation: in between it may have held its Lease, and renewed it.
func (r *Session) handleProof(now member.Moment, q question, reply member.Reply) {
	p := r.proofs[q.session]
	p.pending, p.dead, p.step, p.again = false, member.Moment{}, q.step, now.Add(retryAfter)
	for number := p.waiting.next(0); number >= 0; number = p.waiting.next(number + 1) {
		p.waiting.set(number, false)
		r.touch(r.slots[number])
	}
	switch reply.Outcome {
	case member.Done, member.NotFound:
		switch r.others.Judge(now, q.session, reply.Lease) {
		case member.Alive:
		case member.Doomed:
			p.dead = now.Add(r.settings.Config.TakeOver)
		case member.Dead:
			p.dead = now
		}
	case member.Conflict, member.Exists, member.Unanswered, member.Refused:
	}
}

// quarantined reports whether a slot Lease is so new that a session may hold an earlier one. The quarantine ends some time after
// the leader's list was first seen on it, so that every session that is not listed has passed its fence, and when all listed ones
// have confirmed that they have nothing of the slot in flight, or are dead.
func (r *Session) quarantined(now member.Moment, s *slot) bool {
	if !s.genuine {
		return true
	}
	if len(s.quarantine) == 0 {
		return false
	}
	if end := s.listed.Add(r.settings.Config.TakeOver); now.Since(end) < 0 {
		r.laterFor(s, end)
		return true
	}
	open := false
	for _, session := range s.quarantine {
		if session != r.settings.Session && !r.confirmed(s, session) && !r.isDead(now, s, session) {
			open = true
		}
	}
	return open
}

// confirmed reports whether a session has confirmed on its Lease that it has nothing of the slot in flight. Once true this stays
// true, because the Lease that it may have held is gone: so what the watch shows is sufficient.
func (r *Session) confirmed(s *slot, session string) bool {
	_, confirmed := r.confirmations[session][s.lease.UID]
	return confirmed
}

// readConfirmed parses the UIDs of the slot Leases that a session has confirmed.
func readConfirmed(text string) map[types.UID]struct{} {
	if text == "" {
		return nil
	}
	uids := make(map[types.UID]struct{}, strings.Count(text, ",")+1)
	for uid := range strings.SplitSeq(text, ",") {
		uids[types.UID(uid)] = struct{}{}
	}
	return uids
}

// confirms reports whether this session can confirm that it has nothing in flight of a slot whose Lease is new.
func (r *Session) confirms(s *slot) bool {
	return s.lease != nil && s.genuine && !s.busy && s.phase == free && slices.Contains(s.quarantine, r.settings.Session)
}

func latest(a, b member.Moment) member.Moment {
	if a.Monotonic < b.Monotonic {
		return b
	}
	return a
}
