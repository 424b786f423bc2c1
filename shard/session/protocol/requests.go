package protocol

import (
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

const (
	// mostRequests is how many requests for slot Leases may be in flight at once.
	mostRequests = 32
	// retryAfter is the wait after a request that had no effect.
	retryAfter = 500 * time.Millisecond
)

// about is what a request is for.
type about int

const (
	aboutOwn about = iota
	aboutReread
	aboutSlot
	aboutProof
	aboutDeath
	aboutCensus
	aboutRestore
)

// question is the context of a request that is not answered yet.
type question struct {
	about about
	verb  member.Verb
	// step is the one that sent it: what a read shows is at least as new as what was known then.
	step uint64
	slot *slot
	// acquired is the acquireTime that the request writes, if it acquires.
	acquired time.Time
	// releases is true if it clears the holder.
	releases bool
	session  string
	// leads is true if only the leader sends it, for the Lease of that name.
	leads bool
	name  string
}

// send sends a request.
func (r *Session) send(request member.Request, q question) {
	r.nextID++
	request.ID = r.nextID
	q.step, q.verb, q.leads, q.name = r.steps, request.Verb, request.Need == member.NeedLeadership, request.Name
	r.pending[request.ID] = q
	r.out.Requests = append(r.out.Requests, request)
}

// sendForSlot sends a request for a slot Lease, the only one in flight for that Lease.
func (r *Session) sendForSlot(s *slot, request member.Request, q question) {
	s.pending = true
	r.inUse++
	request.Name, q.about, q.slot = s.name, aboutSlot, s
	r.send(request, q)
}

// maySend reports whether a request for the slot Lease can be sent now.
func (r *Session) maySend(now member.Moment, s *slot) bool {
	switch {
	case s.pending || r.activity != active:
		return false
	case !now.Reached(s.retry):
		r.deadlineFor(now, s, s.retry)
		return false
	case r.inUse >= mostRequests:
		r.blocked.set(s.number, true) // an answer makes room
		return false
	}
	return true
}

// handleReply applies the answer to a request of ours. Any other answer is ignored.
func (r *Session) handleReply(now member.Moment, reply member.Reply) {
	q, ok := r.pending[reply.ID]
	if !ok {
		return
	}
	delete(r.pending, reply.ID)
	r.dirty = r.dirty || q.about != aboutOwn
	if q.leads && (q.verb == member.Create || q.verb == member.Update) {
		r.recordLeaderWrite(now, q.name, reply.Outcome)
	}
	switch q.about {
	case aboutOwn:
		if q.verb != member.Get && (reply.Outcome == member.Unanswered || reply.Outcome == member.Refused) {
			r.others.Interrupt()
		}
		if q.verb != member.Get && reply.Outcome == member.Done {
			r.others.Acknowledged(now)
		}
		r.own.Replied(now, reply)
	case aboutReread:
		r.handleReread(now, q, reply)
	case aboutSlot:
		r.handleSlotReply(now, q, reply)
	case aboutProof:
		r.handleProof(now, q, reply)
	case aboutDeath:
		r.handleDeath(now, q, reply)
	case aboutCensus:
		r.handleCensus(now, q, reply)
	case aboutRestore:
		r.handleRestore(now, q, reply)
	}
}

// handleSlotReply applies the answer to a request for a slot Lease.
func (r *Session) handleSlotReply(now member.Moment, q question, reply member.Reply) {
	s := q.slot
	r.touch(s)
	s.pending = false
	r.inUse--
	switch reply.Outcome {
	case member.Done:
		if s.mustRead = s.lease == nil && q.step < s.step; s.mustRead {
			return // it was observed to be gone while this was in flight: what the answer shows may be older
		}
		requestedAt := uint64(0)
		if q.verb == member.Get {
			requestedAt = q.step
		}
		r.observeSlot(now, s, reply.Lease, requestedAt)
	case member.NotFound:
		s.mustRead = false
		r.observeSlot(now, s, nil, q.step)
	case member.Conflict, member.Exists, member.Unanswered:
		// A read shows whether the request took effect, unless it is still in flight: then the Lease is unchanged, and repeating
		// the same write is harmless.
		s.mustRead = true
		s.uncertain = s.uncertain || q.releases
		if q.verb == member.Get || reply.Outcome == member.Unanswered {
			s.retry = now.Add(retryAfter)
		}
	case member.Refused:
		s.retry = now.Add(retryAfter)
		s.forget(q.acquired)
		if q.releases && s.phase == releasing && !s.uncertain {
			s.phase = stopping
		}
	}
}
