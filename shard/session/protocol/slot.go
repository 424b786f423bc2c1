package protocol

import (
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// phase is the phase of this session's use of a slot.
type phase int

const (
	// free: the session does not hold the slot.
	free phase = iota
	// held: keys are admitted.
	held
	// stopping: keys are not admitted any more; what is in flight continues.
	stopping
	// cancelled: what is in flight has been cancelled too.
	cancelled
	// releasing: nothing is in flight, and the holder is being cleared. Nothing starts.
	releasing
)

func (p phase) String() string {
	return [...]string{"free", "held", "stopping", "cancelled", "releasing"}[p]
}

// note is the content of a slot Lease.
type note struct {
	holder, assigned, home string
	weight                 int64
	// genuine is true if a leader has listed the sessions since this very Lease was created;
	// quarantine are those that have to confirm.
	genuine    bool
	quarantine []string
	labelled   bool
	// replica is the holder's; "" if the holder is not the identity of a session.
	replica string
}

func readNote(fleet string, l *coordinationv1.Lease) note {
	if l == nil {
		return note{}
	}
	n := note{
		holder: member.Holder(l), assigned: l.Annotations[v1alpha1.AnnotationAssignedReplica], home: l.Annotations[v1alpha1.AnnotationHome],
		genuine:  l.Annotations[v1alpha1.AnnotationLeaseUID] == string(l.UID),
		labelled: l.Labels[v1alpha1.LabelFleet] == fleet && l.Labels[v1alpha1.LabelLease] == v1alpha1.LeaseOfSlot,
	}
	if weight, err := strconv.ParseInt(l.Annotations[v1alpha1.AnnotationWeight], 10, 64); err == nil && weight >= 0 {
		n.weight = weight
	}
	if replica, ok := member.ReplicaOf(n.holder); ok {
		n.replica = replica
	}
	if sessions := l.Annotations[v1alpha1.AnnotationQuarantine]; sessions != "" {
		n.quarantine = strings.Split(sessions, ",")
	}
	return n
}

// slot records what is known of one slot, and how this session uses it.
type slot struct {
	number int
	name   string

	// lease is the newest version that we know of; nil if there is none.
	lease *coordinationv1.Lease
	note
	// step, uidStep and holderStep are the steps in which this version, this UID, and this holder with
	// this quarantine were first seen.
	step, uidStep, holderStep uint64
	// listed is when this quarantine was first seen.
	listed member.Moment

	phase phase
	// uid and acquired are the Lease's UID and acquireTime under which the slot is held; epoch is its
	// epoch.
	uid      k8stypes.UID
	acquired time.Time
	epoch    int64
	// attempts are the acquireTimes of writes that may take effect; attempted is the version that they
	// would replace.
	attempts  []time.Time
	attempted *coordinationv1.Lease
	// released is the resourceVersion that our release replaces; uncertain is true if the release may
	// take effect without an answer.
	released  string
	uncertain bool
	// opened is true once the objects of the slot are known since it was last acquired, or resumed, at
	// openSince; if they are not by openBy, the slot is released. failures counts how often that has
	// happened consecutively, and before closedUntil the session does not acquire the slot again.
	opened                         bool
	openSince, openBy, closedUntil member.Moment
	failures                       int
	// clearing is since when nothing of the slot is in flight and its holder is being cleared; zero:
	// it is not.
	clearing member.Moment
	// busy is true if something of the slot may be in flight; ticket is that of the change, sent at
	// since, that ended it.
	busy   bool
	ticket uint64
	since  member.Moment

	// pending is true while a request for the Lease is not answered; mustRead is true if the Lease has
	// to be read, and retry is when the next request may be sent.
	pending, mustRead bool
	retry             member.Moment

	leading
}

// leading is the leader's state of a slot.
type leading struct {
	// target is the replica that the leader has decided to assign the slot to, with targetHome as its
	// home; "" if nothing has to be written.
	target, targetHome string
	// mayWait is true if the slot may stay where it is for a while (Move.MayWait); sent is when the
	// assignment of such a slot was first sent; zero: it was not yet.
	mayWait bool
	sent    member.Moment
	// ownerless is since when the slot has had no holder although its assigned replica, then
	// candidate, could acquire it.
	ownerless member.Moment
	candidate string
	// homeSince is when the home was first seen, movedAt when the slot was last moved for joining or
	// load (Move.Rebalances).
	homeSince, movedAt member.Moment
	passed             map[string]time.Duration
	forAccounts        accountMoves
	// reported is the last weight that a holder reported, if wasReported.
	reported    int64
	wasReported bool
}

// observe records a version of the slot Lease, nil if there is none, and reports whether it is
// news. requestedAt is the step in which the live read that has shown it was requested, 0 if there
// was none. A version older than the one that we know is not news, unless we already knew that one
// when we requested the read: then etcd has been restored.
func (s *slot) observe(now member.Moment, step uint64, fleet string, l *coordinationv1.Lease, requestedAt uint64) (news bool) {
	switch {
	case l == nil:
		if s.lease == nil || requestedAt != 0 && requestedAt < s.step {
			return false
		}
	case s.lease == nil:
	case l.UID == s.lease.UID && l.ResourceVersion == s.lease.ResourceVersion, requestedAt < s.step && member.IsOlder(l, s.lease):
		return false
	}
	s.step = step
	before, isNew := s.note, l != nil && (s.lease == nil || s.lease.UID != l.UID)
	s.lease, s.note = l, readNote(fleet, l)
	if isNew {
		s.uidStep = step
	}
	// A Lease can be created by hand with the annotations of an earlier one: it is listed only if its
	// annotation carries its own UID.
	isListed := isNew || before.genuine != s.genuine || !slices.Equal(before.quarantine, s.quarantine)
	if isListed {
		s.listed = now
	}
	if isListed || before.holder != s.holder {
		s.holderStep = step
	}
	if before.home != s.home {
		s.homeSince = now
	}
	return true
}

// isOurs reports whether the Lease shows a write of ours that acquired the slot. That it names us
// is not enough: it may be a restored or a hand-written one.
func (s *slot) isOurs(session string, acquired time.Time) bool {
	return s.lease != nil && s.holder == session && s.lease.Spec.AcquireTime != nil && s.lease.Spec.AcquireTime.Time.Equal(acquired)
}

// mostAttempts is how many attempts are remembered for a slot. One that takes effect later, minutes
// after it was sent, is not recognized as ours: the holder is cleared, and the slot acquired once
// more.
const mostAttempts = 64

// newAttempt records that a write that acquires the slot is about to be sent.
func (s *slot) newAttempt(acquired time.Time) {
	s.attempts, s.attempted = append(s.attempts, acquired), s.lease
	if len(s.attempts) > mostAttempts {
		s.attempts = slices.Delete(s.attempts, 0, 1)
	}
}

// forget removes an attempt that certainly has no effect.
func (s *slot) forget(acquired time.Time) {
	s.attempts = slices.DeleteFunc(s.attempts, acquired.Equal)
}

// newLease returns a slot Lease that is in quarantine.
func newLease(fleet, namespace, name string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	member.Label(l, fleet, v1alpha1.LeaseOfSlot)
	return l
}
