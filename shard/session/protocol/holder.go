package protocol

import (
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// holder acquires, holds and hands over this session's slots.
type holder struct {
	*shared

	activation *activation
	ability    *ability
	table      *table
	proofs     *proofs
	reporting  *reporting
	// engaged are the slots that prevent a leaving session from emptying its Lease.
	engaged slotSet
	// assignedAway is when a slot of this session, which leaves, was last seen to be assigned to
	// another replica.
	assignedAway member.Moment
}

// observeSlot applies a version of a slot Lease, nil if there is none: the session holds the slot
// exactly as long as its Lease shows the write that acquired it.
func (h *holder) observeSlot(now member.Moment, s *slot, l *coordinationv1.Lease, requestedAt uint64) {
	if !s.observe(now, h.steps, h.settings.Fleet, l, requestedAt) {
		return
	}
	h.touch(s)
	if s.phase == held && h.isLeaving() && s.assigned != h.settings.Replica {
		h.assignedAway = now
		h.touchAll() // the others wait for longer
	}
	switch {
	case s.phase == free:
		h.confirm(now, s)
	case s.lease == nil || s.lease.UID != s.uid || !s.isOurs(h.settings.Session, s.acquired):
		h.lose(now, s)
	case s.phase == releasing && s.lease.ResourceVersion != s.released:
		s.phase, s.uncertain = stopping, false // a newer version that still names us: the release cannot take effect any more
	}
}

// confirm makes the session hold the slot if its Lease shows one of our attempts, whether or not it
// was answered.
func (h *holder) confirm(now member.Moment, s *slot) {
	for _, acquired := range s.attempts {
		if s.lease != nil && s.lease.UID == s.attempted.UID && s.isOurs(h.settings.Session, acquired) {
			from := member.Holder(s.attempted)
			s.phase, s.busy, s.attempts = held, true, nil
			s.uid, s.acquired, s.epoch = s.lease.UID, acquired, member.Transitions(s.lease)
			s.opened = false
			h.ability.setOpenDeadline(now, s)
			h.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Acquired, From: from})
			return
		}
	}
	if len(s.attempts) > 0 && (s.lease == nil || s.lease.ResourceVersion != s.attempted.ResourceVersion) {
		s.attempts = nil // they would replace a version that has already been replaced
	}
}

// lose records that the session does not hold the slot any more.
func (h *holder) lose(now member.Moment, s *slot) {
	s.phase, s.busy, s.ticket, s.since, s.uncertain, s.clearing = free, true, h.ticket(), now, false, member.Moment{}
	h.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Lost, Ticket: s.ticket})
}

// decideSlot decides the next step for a slot.
func (h *holder) decideSlot(now member.Moment, s *slot) {
	h.timeRelease(now, s)
	switch {
	case s.mustRead:
		if h.activation.maySend(now, s) {
			h.sendForSlot(s, member.Request{Verb: member.Get, Need: member.NeedNothing}, question{})
		}
	case s.phase == free:
		h.decideFree(now, s)
	case s.phase == held:
		if h.ability.failsToOpen(now, s) || !h.shouldHold(now, s) {
			h.stop(now, s)
		}
	case s.phase == releasing:
		h.release(now, s)
	default: // stopping or cancelled
		h.decideStopping(now, s)
	}
}

// expired ends a process that cannot stop what is in flight of a slot that it has lost or releases.
// Its session Lease is not changed: by the time that another session may take it, everything in
// flight has ended.
func (h *holder) expired(now member.Moment, s *slot) bool {
	if !s.busy || s.phase != cancelled && s.phase != free {
		return false
	}
	deadline := s.since.Add(h.settings.Config.ExitAfterCancel)
	if !now.Reached(deadline) {
		h.deadlineFor(now, s, deadline)
		return false
	}
	h.exit(Exit{Reason: ReasonInFlight, Message: fmt.Sprintf(
		"slot %d: expected nothing in flight %v after it was cancelled, got no confirmation of that; start a new session",
		s.number, h.settings.Config.ExitAfterCancel)})
	return true
}

// shouldHold reports whether the session should continue to hold a slot that it holds.
func (h *holder) shouldHold(now member.Moment, s *slot) bool {
	if s.assigned != "" && s.assigned != h.settings.Replica || h.ability.blind || h.activation.stuck != "" || h.ability.isClosed(now, s) {
		return false
	}
	return !h.leaveWaitIsOver(now, s)
}

// stop begins a hand-over: no more keys are admitted, and what is in flight continues.
func (h *holder) stop(now member.Moment, s *slot) {
	s.phase, s.ticket, s.since = stopping, h.ticket(), now
	h.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Stopped, Ticket: s.ticket})
	h.laterFor(s, now.Add(h.handOverTime()))
}

// handOverTime returns how long a hand-over waits for what is in flight before it cancels it.
func (h *holder) handOverTime() time.Duration {
	c := h.settings.Config
	if h.activation.stuck != "" || !h.ability.report.IsFit() {
		return min(c.UnfitHandOver, c.HandOverTimeout)
	}
	return c.HandOverTimeout
}

// cancel cancels what is in flight of a slot that is handed over.
func (h *holder) cancel(now member.Moment, s *slot) {
	s.phase, s.ticket, s.since = cancelled, h.ticket(), now
	h.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Cancelled, Ticket: s.ticket})
	h.laterFor(s, now.Add(h.settings.Config.ExitAfterCancel))
}

// decideStopping continues a hand-over, or reverts it.
func (h *holder) decideStopping(now member.Moment, s *slot) {
	switch timeout := s.since.Add(h.handOverTime()); {
	case h.shouldHold(now, s):
		s.phase, s.busy, s.clearing = held, true, member.Moment{}
		h.ability.setOpenDeadline(now, s)
		h.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Resumed})
		h.touch(s) // the deadlines of a hand-over do not apply any more
	case !s.busy:
		if s.clearing.IsZero() {
			s.clearing = now
		}
		h.release(now, s)
	case s.phase == cancelled:
	case now.Reached(timeout):
		h.cancel(now, s)
	default:
		h.deadlineFor(now, s, timeout)
	}
}

// release clears the holder. Once it is sent nothing starts for the slot, because it may have taken
// effect, until a newer version of the Lease that still names us is observed.
func (h *holder) release(now member.Moment, s *slot) {
	if !h.activation.maySend(now, s) {
		return
	}
	s.phase, s.released = releasing, s.lease.ResourceVersion
	h.sendForSlot(s, member.Request{Verb: member.Update, Lease: h.vacated(now, s), Need: member.NeedFence}, question{releases: true})
}

// vacated returns the slot's Lease without a holder. It records the slot's weight, and its home if
// the session leaves without a leader that could record it.
func (h *holder) vacated(now member.Moment, s *slot) *coordinationv1.Lease {
	l := h.written(now, s)
	l.Spec.HolderIdentity = nil
	if weight, known := h.reporting.weights[s.number]; known {
		member.Annotate(l, v1alpha1.AnnotationWeight, strconv.FormatInt(weight, 10))
	}
	if h.isLeaving() && s.home == "" && s.assigned == h.settings.Replica {
		member.Annotate(l, v1alpha1.AnnotationHome, h.settings.Replica)
	}
	return l
}

// handleSlotReply applies the answer to a request for a slot Lease.
func (h *holder) handleSlotReply(now member.Moment, q question, reply member.Reply) {
	s := q.slot
	h.touch(s)
	switch reply.Outcome {
	case member.Done:
		if s.mustRead = s.lease == nil && q.step < s.step; s.mustRead {
			return // it was observed to be gone while this was in flight: what the answer shows may be older
		}
		requestedAt := uint64(0)
		if q.verb == member.Get {
			requestedAt = q.step
		}
		h.observeSlot(now, s, reply.Lease, requestedAt)
	case member.NotFound:
		s.mustRead = false
		h.observeSlot(now, s, nil, q.step)
	case member.Conflict, member.Exists, member.Unanswered:
		// A read shows whether the request took effect, unless it is still in flight: then the Lease is
		// unchanged, and repeating the same write is harmless.
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

// timeRelease acts on a slot whose holder could not be cleared for a long time although nothing of
// it is in flight. The session stops then: it works on none of its slots any more, and empties
// its own Lease once nothing is in flight, so that other sessions take over the slots at once. It
// cannot continue with the slot: a write without an answer may take effect later.
func (h *holder) timeRelease(now member.Moment, s *slot) {
	if s.clearing.IsZero() || h.activation.stuck != "" {
		return
	}
	if deadline := s.clearing.Add(h.settings.Config.BlindAfter); !now.Reached(deadline) {
		h.laterFor(s, deadline)
		return
	}
	h.activation.stuck = fmt.Sprintf(
		"slot %d: expected the slot Lease to be written within %v of its hand-over, got no answer or a refusal; check "+
			"the connection to the API server and what may refuse the write, and start a new session", s.number, h.settings.Config.BlindAfter,
	)
	h.touchAll()
}

// mostLeaveWaits is for how many times LeaveWait a leaving session waits at most. What is in flight
// then is waited for, cancelled and waited for again within the 60 s after which a pod is killed.
const mostLeaveWaits = 3

// leaveWaitIsOver reports whether a leaving session has waited long enough for the leader to assign
// its slots to other replicas. The leader does so with a few at a time: as long as there is another
// one within LeaveWait, the session waits.
func (h *holder) leaveWaitIsOver(now member.Moment, s *slot) bool {
	if !h.isLeaving() {
		return false
	}
	c := h.settings.Config
	deadline := h.leavingAt.Add(c.LeaveWait)
	if !h.assignedAway.IsZero() {
		deadline = member.Earliest(h.assignedAway.Add(c.LeaveWait), h.leavingAt.Add(mostLeaveWaits*c.LeaveWait))
	}
	if now.Reached(deadline) {
		return true
	}
	h.deadlineFor(now, s, deadline)
	return false
}

// resume continues with the slots when the session acts again after its fence.
func (h *holder) resume(now member.Moment) {
	for _, s := range h.slots {
		if !s.clearing.IsZero() {
			s.clearing = now
		}
		switch s.phase {
		case held:
			h.ability.setOpenDeadline(now, s)
			h.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Resumed})
		case stopping, cancelled:
			if s.busy { // its contexts were cancelled at the fence, and an answer to an earlier ticket does not answer that
				h.cancel(now, s)
			}
		case free, releasing:
		}
	}
}
