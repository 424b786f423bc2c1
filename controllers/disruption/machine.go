package disruption

import (
	"cmp"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// HealthDeadline returns when a machine has been unhealthy for longer than allowed. The machine's own timeout has precedence over
// the fleet's. ok is false if it is healthy, or has no timeout.
func HealthDeadline(m *v1alpha1.Machine, timeout time.Duration) (deadline time.Time, ok bool) {
	if !isUnhealthy(m) || keepsItsHealth(m) {
		return time.Time{}, false
	}
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineHealthTimeout != nil {
		timeout = c.MachineHealthTimeout.Duration
	}
	return m.Status.CurrentStatus.LastUpdateTime.Add(timeout), true
}

// isUnhealthy reports whether the machine has run and is about to recover, or to be replaced: its Node is unhealthy, or could not
// be updated in place.
func isUnhealthy(m *v1alpha1.Machine) bool {
	phase := m.Status.CurrentStatus.Phase
	return phase == v1alpha1.MachineUnknown || phase == v1alpha1.MachineInPlaceUpdateFailed
}

// keepsItsHealth reports whether the machine is not replaced for its health.
func keepsItsHealth(m *v1alpha1.Machine) bool {
	c := m.Spec.MachineConfiguration
	return c != nil && c.DisableHealthTimeout != nil && *c.DisableHealthTimeout
}

// stage is the state of a machine for the limit of its root.
type stage int

const (
	// steady: it runs, or it is unhealthy; no replacement has begun.
	steady stage = iota
	// failed: it has failed, and its replacement has not begun.
	failed
	// coming: it is to become a healthy Node, for the first time or after its update in place.
	coming
	// leaving: it is being deleted.
	leaving
	// aside: it has failed and is preserved.
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

// PreserveValue returns the last requested preservation of the machine. The value of its Node, as recorded on the machine, has
// precedence over the machine's own.
func PreserveValue(m *v1alpha1.Machine) string {
	return cmp.Or(m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue], m.Annotations[v1alpha1.AnnotationPreserve])
}

// IsKept reports whether the machine is preserved or to be preserved although it has failed. While it is preserved it has an expiry,
// after which nothing else counts.
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
