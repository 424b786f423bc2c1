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

// phase is what this session does with a slot.
type phase int

const (
	// free: the session does not hold the slot.
	free phase = iota
	// held: keys are taken.
	held
	// stopping: keys are not taken any more; what is in flight goes on.
	stopping
	// cancelled: what is in flight has been cancelled too.
	cancelled
	// releasing: nothing is in flight, and the holder is being cleared. Nothing starts.
	releasing
)

func (p phase) String() string {
	return [...]string{"free", "held", "stopping", "cancelled", "releasing"}[p]
}

// note is what a slot Lease says.
type note struct {
	holder, assigned, home string
	weight                 int64
	// genuine says that a leader has listed the sessions since this very Lease was made; quarantine are those that have
	// to confirm.
	genuine    bool
	quarantine []string
	labelled   bool
	// replica is the holder's; "" if the holder is no session's identity.
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

// slot is what is known of one slot, and what this session does with it.
type slot struct {
	number int
	name   string

	// lease is the newest version that we know of; nil if there is none.
	lease *coordinationv1.Lease
	note
	// step, uidStep and holderStep are the steps at which this version, this UID, and this holder with this quarantine were
	// first seen.
	step, uidStep, holderStep uint64
	// listed is when this quarantine was.
	listed member.Moment

	phase phase
	// uid and acquired are the Lease's UID and acquireTime by which the slot is held; epoch is its epoch.
	uid      k8stypes.UID
	acquired time.Time
	epoch    int64
	// attempts are the acquireTimes of writes that may take effect; attempted is the version that they would replace.
	attempts  []time.Time
	attempted *coordinationv1.Lease
	// released is the resourceVersion that our release replaces; uncertain says that it may do so without an answer.
	released  string
	uncertain bool
	// opened says that the objects of the slot are known, as it was acquired last; if they are not by openBy, the slot is
	// released. failures counts how often that has happened, one after the other, and before closedUntil the session does not
	// acquire the slot again.
	opened              bool
	openBy, closedUntil member.Moment
	failures            int
	// clearing is since when nothing of the slot is in flight and its holder is to be cleared; zero: it is not.
	clearing member.Moment
	// busy says that something of the slot may be in flight; ticket is that of the change that was to end it, at since.
	busy   bool
	ticket uint64
	since  member.Moment

	// asked says that a request for the Lease is not answered yet; mustRead that the Lease has to be read, and retry is
	// when the next request may be sent.
	asked, mustRead bool
	retry           member.Moment

	leading
}

// leading is what a leader keeps about a slot.
type leading struct {
	// target is the planned preferred holder, with targetHome as its home note; "" if nothing is to be written.
	target, targetHome string
	// ownerless is since when nobody holds the slot although its preferred holder, which was the candidate, could take it.
	ownerless member.Moment
	candidate string
	// homeSince is when the home note was first seen, movedAt when the slot was last planned for the sake of calm reasons.
	homeSince, movedAt member.Moment
	passed             map[string]time.Duration
	// reported is the weight that a holder has reported last, if wasReported.
	reported    int64
	wasReported bool
}

// take notes a version of the slot Lease, nil if there is none, and says whether it is news. asked is the step in which a
// live read was asked for that has shown it, 0 if it was none. An older version than the one that we know is no news,
// unless we have known that when we asked: then etcd has been restored.
func (s *slot) take(now member.Moment, step uint64, fleet string, l *coordinationv1.Lease, asked uint64) (news bool) {
	switch {
	case l == nil:
		if s.lease == nil || asked != 0 && asked < s.step {
			return false
		}
	case s.lease == nil:
	case l.UID == s.lease.UID && l.ResourceVersion == s.lease.ResourceVersion, asked < s.step && member.IsOlder(l, s.lease):
		return false
	}
	s.step = step
	before, isNew := s.note, l != nil && (s.lease == nil || s.lease.UID != l.UID)
	s.lease, s.note = l, readNote(fleet, l)
	if isNew {
		s.uidStep = step
	}
	// A Lease can be made by hand with the annotations of an earlier one: it is listed only when it says so of itself.
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

// isOurs says that the Lease shows a write of ours that acquired the slot. That it names us is not enough: it may be a
// restored or a hand-written one.
func (s *slot) isOurs(session string, acquired time.Time) bool {
	return s.lease != nil && s.holder == session && s.lease.Spec.AcquireTime != nil && s.lease.Spec.AcquireTime.Time.Equal(acquired)
}

// mostAttempts is how many attempts are remembered for a slot. One that takes effect later, minutes after it was sent, is
// not known as ours: the holder is cleared, and the slot acquired once more.
const mostAttempts = 64

// newAttempt notes that a write that acquires the slot is about to be sent.
func (s *slot) newAttempt(acquired time.Time) {
	s.attempts, s.attempted = append(s.attempts, acquired), s.lease
	if len(s.attempts) > mostAttempts {
		s.attempts = slices.Delete(s.attempts, 0, 1)
	}
}

// forget takes back an attempt that certainly has no effect.
func (s *slot) forget(acquired time.Time) {
	s.attempts = slices.DeleteFunc(s.attempts, acquired.Equal)
}

// newLease returns a slot Lease that is in quarantine.
func newLease(fleet, namespace, name string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	member.Label(l, fleet, v1alpha1.LeaseOfSlot)
	return l
}
