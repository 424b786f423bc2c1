package machinefacts

import (
	"cmp"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// IsPreserved reports whether the machine is preserved: its expiry time is in the future, and it is
// not being deleted.
func IsPreserved(m *v1alpha1.Machine, now time.Time) bool {
	expiry := m.Status.CurrentStatus.PreserveExpiryTime
	return m.DeletionTimestamp == nil && expiry != nil && expiry.After(now)
}

// IsPreservedFailed reports whether the machine counts for preservedFailedReplicas: it has failed
// and is preserved.
func IsPreservedFailed(m *v1alpha1.Machine, now time.Time) bool {
	return HasFailed(m) && IsPreserved(m, now)
}

// IsPreservationOver reports whether the expiry time of the machine has passed. A machine that
// stays failed keeps the time, so that its preservation does not begin again.
func IsPreservationOver(m *v1alpha1.Machine, now time.Time) bool {
	expiry := m.Status.CurrentStatus.PreserveExpiryTime
	return expiry != nil && !expiry.After(now)
}

// IsKept reports whether the machine must not be replaced although it has failed: it is preserved,
// or its preservation is requested and has not begun. After its expiry time no request counts.
func IsKept(m *v1alpha1.Machine, now time.Time) bool {
	if expiry := m.Status.CurrentStatus.PreserveExpiryTime; expiry != nil {
		return expiry.After(now)
	}
	switch PreserveValue(m) {
	case v1alpha1.PreserveNow, v1alpha1.PreserveWhenFailed, v1alpha1.PreserveAuto:
		return true
	}
	return false
}

// PreserveValue returns the value of the annotation preserve that applies to the machine; ""
// without one. The value of its Node, as it is recorded on the machine, has precedence over the
// machine's own.
func PreserveValue(m *v1alpha1.Machine) string {
	return cmp.Or(m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue], m.Annotations[v1alpha1.AnnotationPreserve])
}

// PreservationEnds returns when, from now, the preservation of the first of the failed machines
// ends; 0 when none is preserved. Nothing is written at that time, so that a controller that counts
// preserved machines has to count them again then.
func PreservationEnds(machines []*v1alpha1.Machine, now time.Time) (next time.Duration) {
	for _, m := range machines {
		if IsPreservedFailed(m, now) {
			next = Sooner(next, m.Status.CurrentStatus.PreserveExpiryTime.Sub(now))
		}
	}
	return next
}
