package protocol

import (
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// acquireRule is a reason for which the session does not acquire a slot that it does not hold.
type acquireRule struct {
	name string
	// applies reports whether the slot is not acquired for this reason. Where that may change without
	// an event, it has the session decide the slot again.
	applies func(*holder, member.Moment, *slot) bool
	// clears is true if the session clears the holder then.
	clears bool
}

// acquireRules are examined in this order, and the first that applies decides. Those that may read
// session Leases are the last: a session that must not acquire the slot in any case needs no proof.
var acquireRules = []acquireRule{
	{name: "no slot Lease", applies: func(_ *holder, _ member.Moment, s *slot) bool { return s.lease == nil }},
	{name: "earlier work in flight", applies: func(_ *holder, _ member.Moment, s *slot) bool { return s.busy }},
	{name: "this session is named and has not acquired it", applies: (*holder).isNamedOnly, clears: true},
	{name: "leaving with an attempt in flight", applies: (*holder).leavesAttempt, clears: true},
	{name: "another replica is to be assigned", applies: (*holder).isBeingReassigned},
	{name: "leaving", applies: func(h *holder, _ member.Moment, _ *slot) bool { return h.isLeaving() }},
	{name: "another replica is assigned", applies: func(h *holder, _ member.Moment, s *slot) bool { return s.assigned != h.settings.Replica }},
	{name: "changes of Leases are not observed", applies: func(h *holder, _ member.Moment, _ *slot) bool { return h.ability.blind }},
	{name: "stopping", applies: func(h *holder, _ member.Moment, _ *slot) bool { return h.activation.stuck != "" }},
	{name: "did not open here", applies: func(h *holder, now member.Moment, s *slot) bool { return h.ability.isClosed(now, s) }},
	{name: "quarantine", applies: func(h *holder, now member.Moment, s *slot) bool { return h.proofs.quarantined(now, s) }},
	{name: "the holder may live", applies: (*holder).mayHaveHolder},
}

// isNamedOnly reports whether another client has written our name, or a restored etcd shows it. The
// earlier holder may not have noticed yet, so we do not act on it.
func (h *holder) isNamedOnly(_ member.Moment, s *slot) bool {
	return s.holder == h.settings.Session && len(s.attempts) == 0
}

// leavesAttempt reports whether we are leaving, and an attempt may still be in flight: clearing the
// holder makes it conflict.
func (h *holder) leavesAttempt(_ member.Moment, s *slot) bool {
	return h.isLeaving() && len(s.attempts) > 0
}

// isBeingReassigned reports whether we have assigned the slot to another replica as the leader, and
// have to write that first.
func (h *holder) isBeingReassigned(_ member.Moment, s *slot) bool {
	return s.target != "" && s.target != h.settings.Replica
}

// mayHaveHolder reports whether another session holds the slot and is not proven dead.
func (h *holder) mayHaveHolder(now member.Moment, s *slot) bool {
	return s.holder != "" && s.holder != h.settings.Session && !h.proofs.isDead(now, s, s.holder)
}

// whyNotAcquired returns the rule for which a slot is not acquired; nil if none applies.
func (h *holder) whyNotAcquired(now member.Moment, s *slot) *acquireRule {
	for i := range acquireRules {
		if acquireRules[i].applies(h, now, s) {
			return &acquireRules[i]
		}
	}
	return nil
}

// decideFree acquires a slot that the session does not hold, if it may.
func (h *holder) decideFree(now member.Moment, s *slot) {
	rule := h.whyNotAcquired(now, s)
	switch {
	case rule != nil && !rule.clears, !h.activation.maySend(now, s):
	case rule != nil:
		h.sendForSlot(s, member.Request{Verb: member.Update, Lease: h.vacated(now, s), Need: member.NeedFence}, question{})
	default:
		h.acquire(now, s)
	}
}

// acquire writes our session and the next epoch, by compare and swap.
func (h *holder) acquire(now member.Moment, s *slot) {
	l := h.written(now, s)
	holder, epoch, acquired := h.settings.Session, member.NextTransitions(s.lease), *l.Spec.RenewTime
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions, l.Spec.AcquireTime = &holder, &epoch, &acquired
	member.Annotate(l, v1alpha1.AnnotationQuarantine, "")
	if s.home == h.settings.Replica {
		member.Annotate(l, v1alpha1.AnnotationHome, "")
	}
	// The earlier holder may have died without reporting, and the next report under its name
	// overwrites its last one.
	if weight, known := h.table.reported(s); known {
		member.Annotate(l, v1alpha1.AnnotationWeight, strconv.FormatInt(weight, 10))
	}
	s.newAttempt(acquired.Time)
	h.sendForSlot(s, member.Request{Verb: member.Update, Lease: l, Need: member.NeedFence}, question{acquired: acquired.Time})
}
