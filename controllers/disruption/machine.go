package disruption

import (
	"cmp"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// HealthDeadline is when a machine that is unhealthy has been so for longer than it may. The machine's own timeout goes before
// the fleet's. ok is false while it is not unhealthy, or may be so for ever.
func HealthDeadline(m *v1alpha1.Machine, timeout time.Duration) (deadline time.Time, ok bool) {
	if !isUnhealthy(m) || keepsItsHealth(m) {
		return time.Time{}, false
	}
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineHealthTimeout != nil {
		timeout = c.MachineHealthTimeout.Duration
	}
	return m.Status.CurrentStatus.LastUpdateTime.Add(timeout), true
}

// isUnhealthy says that the machine has run and waits to recover, or to be replaced: its Node is unhealthy, or could not be
// updated in place.
func isUnhealthy(m *v1alpha1.Machine) bool {
	phase := m.Status.CurrentStatus.Phase
	return phase == v1alpha1.MachineUnknown || phase == v1alpha1.MachineInPlaceUpdateFailed
}

// keepsItsHealth says that the machine is not to be given up for its health.
func keepsItsHealth(m *v1alpha1.Machine) bool {
	c := m.Spec.MachineConfiguration
	return c != nil && c.DisableHealthTimeout != nil && *c.DisableHealthTimeout
}

// stage is how far a machine is, as the limit of its root counts.
type stage int

const (
	// steady: it runs, or it is unhealthy and waits; nothing is done about it.
	steady stage = iota
	// failed: it is given up, and its replacement has not begun.
	failed
	// coming: it is on its way to become a healthy Node, for the first time or while it is updated in place.
	coming
	// leaving: it is being deleted.
	leaving
	// aside: it has failed and is kept all the same.
	aside
)

func stageOf(m *v1alpha1.Machine, now time.Time) stage {
	phase := m.Status.CurrentStatus.Phase
	switch {
	case m.DeletionTimestamp != nil:
		return leaving
	case phase == v1alpha1.MachineFailed && IsKept(m, now):
		return aside
	case phase == v1alpha1.MachineFailed:
		return failed
	case phase == v1alpha1.MachineRunning, phase == v1alpha1.MachineAvailable, isUnhealthy(m):
		return steady
	}
	return coming
}

// PreserveValue is what was last said about preserving the machine. What its Node says, as noted on the machine, goes before
// what the machine says.
func PreserveValue(m *v1alpha1.Machine) string {
	return cmp.Or(m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue], m.Annotations[v1alpha1.AnnotationPreserve])
}

// IsKept says that somebody wants to keep the machine although it has failed. While it is preserved it has a time, and when
// that has come nothing else counts.
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
