package protocol

import (
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// observeSlot applies a version of a slot Lease, nil if there is none: the session holds the slot exactly as long as its Lease shows
// the write that acquired it.
func (r *Session) observeSlot(now member.Moment, s *slot, l *coordinationv1.Lease, requestedAt uint64) {
	if !s.observe(now, r.steps, r.settings.Fleet, l, requestedAt) {
		return
	}
	r.touch(s)
	switch {
	case s.phase == free:
		r.confirm(now, s)
	case s.lease == nil || s.lease.UID != s.uid || !s.isOurs(r.settings.Session, s.acquired):
		r.lose(now, s)
	case s.phase == releasing && s.lease.ResourceVersion != s.released:
		s.phase, s.uncertain = stopping, false // a newer version that still names us: the release cannot take effect any more
	}
}

// confirm makes the session hold the slot if its Lease shows one of our attempts, whether or not it was answered.
func (r *Session) confirm(now member.Moment, s *slot) {
	for _, acquired := range s.attempts {
		if s.lease != nil && s.lease.UID == s.attempted.UID && s.isOurs(r.settings.Session, acquired) {
			from := member.Holder(s.attempted)
			s.phase, s.busy, s.attempts = held, true, nil
			s.uid, s.acquired, s.epoch = s.lease.UID, acquired, member.Transitions(s.lease)
			s.opened = false
			r.opens(now, s)
			r.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Acquired, From: from})
			return
		}
	}
	if len(s.attempts) > 0 && (s.lease == nil || s.lease.ResourceVersion != s.attempted.ResourceVersion) {
		s.attempts = nil // they would replace a version that has already been replaced
	}
}

// lose records that the session does not hold the slot any more.
func (r *Session) lose(now member.Moment, s *slot) {
	s.phase, s.busy, s.ticket, s.since, s.uncertain, s.clearing = free, true, r.ticket(), now, false, member.Moment{}
	r.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Lost, Ticket: s.ticket})
}

// decideSlot decides the next step for a slot.
func (r *Session) decideSlot(now member.Moment, s *slot) {
	if r.expired(now, s) || r.activity != active {
		return
	}
	r.timeRelease(now, s)
	switch {
	case s.mustRead:
		if r.maySend(now, s) {
			r.sendForSlot(s, member.Request{Verb: member.Get, Need: member.NeedNothing}, question{})
		}
	case s.phase == free:
		r.decideFree(now, s)
	case s.phase == held:
		if r.failsToOpen(now, s) || !r.shouldHold(now, s) {
			r.stop(now, s)
		}
	case s.phase == releasing:
		r.release(now, s)
	default: // stopping or cancelled
		r.decideStopping(now, s)
	}
	if r.leads {
		r.leadSlot(now, s)
	}
}

// expired ends a process that cannot stop what is in flight of a slot that it has lost or releases. Its session Lease is not
// changed: by the time that another session may take it, everything in flight has ended.
func (r *Session) expired(now member.Moment, s *slot) bool {
	if !s.busy || s.phase != cancelled && s.phase != free {
		return false
	}
	deadline := s.since.Add(r.settings.Config.ExitAfterCancel)
	if !now.Reached(deadline) {
		r.deadlineFor(now, s, deadline)
		return false
	}
	r.exit(Exit{Reason: ReasonInFlight, Message: fmt.Sprintf(
		"slot %d: expected nothing in flight %v after it was cancelled, got no confirmation of that; start a new session", s.number, r.settings.Config.ExitAfterCancel)})
	return true
}

// shouldHold reports whether the session should continue to hold a slot that it holds.
func (r *Session) shouldHold(now member.Moment, s *slot) bool {
	if s.assigned != "" && s.assigned != r.settings.Replica || r.blind || r.stuck != "" || r.isClosed(now, s) {
		return false
	}
	return !r.leaveWaitIsOver(now, s)
}

// stop begins a hand-over: no more keys are admitted, and what is in flight continues.
func (r *Session) stop(now member.Moment, s *slot) {
	s.phase, s.ticket, s.since = stopping, r.ticket(), now
	r.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Stopped, Ticket: s.ticket})
	r.laterFor(s, now.Add(r.handOverTime()))
}

// handOverTime returns how long a hand-over waits for what is in flight before it cancels it.
func (r *Session) handOverTime() time.Duration {
	c := r.settings.Config
	if r.stuck != "" || !r.report.IsFit() {
		return min(c.UnfitHandOver, c.HandOverTimeout)
	}
	return c.HandOverTimeout
}

// cancel cancels what is in flight of a slot that is handed over.
func (r *Session) cancel(now member.Moment, s *slot) {
	s.phase, s.ticket, s.since = cancelled, r.ticket(), now
	r.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Cancelled, Ticket: s.ticket})
	r.laterFor(s, now.Add(r.settings.Config.ExitAfterCancel))
}

// decideStopping continues a hand-over, or reverts it.
func (r *Session) decideStopping(now member.Moment, s *slot) {
	switch timeout := s.since.Add(r.handOverTime()); {
	case r.shouldHold(now, s):
		s.phase, s.busy, s.clearing = held, true, member.Moment{}
		r.opens(now, s)
		r.change(Change{Slot: s.number, Epoch: s.epoch, Kind: Resumed})
		r.touch(s) // the deadlines of a hand-over do not apply any more
	case !s.busy:
		if s.clearing.IsZero() {
			s.clearing = now
		}
		r.release(now, s)
	case s.phase == cancelled:
	case now.Reached(timeout):
		r.cancel(now, s)
	default:
		r.deadlineFor(now, s, timeout)
	}
}

// release clears the holder. Once it is sent nothing starts for the slot, because it may have taken effect, until a newer version
// of the Lease that still names us is observed.
func (r *Session) release(now member.Moment, s *slot) {
	if !r.maySend(now, s) {
		return
	}
	s.phase, s.released = releasing, s.lease.ResourceVersion
	r.sendForSlot(s, member.Request{Verb: member.Update, Lease: r.vacated(now, s), Need: member.NeedFence}, question{releases: true})
}

// vacated returns the slot's Lease without a holder. It records the slot's weight, and its home if the session leaves without a
// leader that could record it.
func (r *Session) vacated(now member.Moment, s *slot) *coordinationv1.Lease {
	l := r.written(now, s)
	l.Spec.HolderIdentity = nil
	if weight, known := r.weights[s.number]; known {
		member.Annotate(l, v1alpha1.AnnotationWeight, strconv.FormatInt(weight, 10))
	}
	if r.notes.Leaving && s.home == "" && s.assigned == r.settings.Replica {
		member.Annotate(l, v1alpha1.AnnotationHome, r.settings.Replica)
	}
	return l
}

// written returns a copy of the slot's Lease to change, with the time of the change for operators.
func (r *Session) written(now member.Moment, s *slot) *coordinationv1.Lease {
	l := s.lease.DeepCopy()
	renew := metav1.NewMicroTime(r.timestamp(now))
	l.Spec.RenewTime = &renew
	return l
}

// decideFree acquires a slot that the session does not hold, if it may.
func (r *Session) decideFree(now member.Moment, s *slot) {
	if s.lease == nil || s.busy {
		return
	}
	if s.holder == r.settings.Session && len(s.attempts) == 0 || r.notes.Leaving && len(s.attempts) > 0 {
		// Another client has written our name, or a restored etcd shows it. The earlier holder may not have noticed yet, so we do
		// not act on it. Or we are leaving, and an attempt may still be in flight: this write makes it conflict.
		if r.maySend(now, s) {
			r.sendForSlot(s, member.Request{Verb: member.Update, Lease: r.vacated(now, s), Need: member.NeedFence}, question{})
		}
		return
	}
	if s.target != "" && s.target != r.settings.Replica {
		return // as the leader we have assigned it to another replica, and have to write that first
	}
	if r.notes.Leaving || s.assigned != r.settings.Replica || r.blind || r.stuck != "" || r.isClosed(now, s) || r.quarantined(now, s) {
		return
	}
	if s.holder != "" && s.holder != r.settings.Session && !r.isDead(now, s, s.holder) {
		return
	}
	if r.maySend(now, s) {
		r.acquire(now, s)
	}
}

// acquire writes our session and the next epoch, by compare and swap.
func (r *Session) acquire(now member.Moment, s *slot) {
	l := r.written(now, s)
	holder, epoch, acquired := r.settings.Session, member.NextTransitions(s.lease), *l.Spec.RenewTime
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions, l.Spec.AcquireTime = &holder, &epoch, &acquired
	member.Annotate(l, v1alpha1.AnnotationQuarantine, "")
	if s.home == r.settings.Replica {
		member.Annotate(l, v1alpha1.AnnotationHome, "")
	}
	// The earlier holder may have died without reporting, and the next report under its name overwrites its last one.
	if weight, known := r.reported(s); known {
		member.Annotate(l, v1alpha1.AnnotationWeight, strconv.FormatInt(weight, 10))
	}
	s.newAttempt(acquired.Time)
	r.sendForSlot(s, member.Request{Verb: member.Update, Lease: l, Need: member.NeedFence}, question{acquired: acquired.Time})
}

// timestamp returns the time for a Lease, which identifies our writes: no two are the same.
func (r *Session) timestamp(now member.Moment) time.Time {
	t := now.Cluster().Truncate(time.Microsecond)
	if !t.After(r.lastTime) {
		t = r.lastTime.Add(time.Microsecond)
	}
	r.lastTime = t
	return t
}
