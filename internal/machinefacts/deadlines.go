package machinefacts

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// CreationTimeout returns how long the machine may take to become a healthy Node. The machine's
// annotation has precedence over its spec, and its spec over the fleet's timeout.
func CreationTimeout(m *v1alpha1.Machine, timeout time.Duration) time.Duration {
	if d, err := time.ParseDuration(m.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout]); err == nil {
		return d
	}
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineCreationTimeout != nil {
		return c.MachineCreationTimeout.Duration
	}
	return timeout
}

// CreationDeadline returns the time at which a machine has failed if it is not a healthy Node.
func CreationDeadline(m *v1alpha1.Machine, timeout time.Duration) time.Time {
	return m.CreationTimestamp.Add(CreationTimeout(m, timeout))
}

// HealthDeadline returns the time at which an unhealthy machine has been so for too long. The
// machine's own timeout has precedence over the fleet's. ok is false if it is not unhealthy, or if
// its health has no timeout.
func HealthDeadline(m *v1alpha1.Machine, timeout time.Duration) (deadline time.Time, ok bool) {
	if !IsUnhealthy(m) || HasNoHealthTimeout(m) {
		return time.Time{}, false
	}
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineHealthTimeout != nil {
		timeout = c.MachineHealthTimeout.Duration
	}
	return m.Status.CurrentStatus.LastUpdateTime.Add(timeout), true
}

// HasNoHealthTimeout reports whether the machine may be unhealthy without a limit of time.
func HasNoHealthTimeout(m *v1alpha1.Machine) bool {
	c := m.Spec.MachineConfiguration
	return c != nil && c.DisableHealthTimeout != nil && *c.DisableHealthTimeout
}

// InPlaceUpdateTimeout returns how long an update in place of the machine, and then the return of
// its Node, may each take. The machine's own timeout has precedence over the fleet's.
func InPlaceUpdateTimeout(m *v1alpha1.Machine, timeout time.Duration) time.Duration {
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineInPlaceUpdateTimeout != nil {
		return c.MachineInPlaceUpdateTimeout.Duration
	}
	return timeout
}

// InPlaceUpdateDeadline returns until when the update in place that the machine is in, or the
// return of its Node, may take.
func InPlaceUpdateDeadline(m *v1alpha1.Machine, timeout time.Duration) time.Time {
	return m.Status.CurrentStatus.LastUpdateTime.Add(InPlaceUpdateTimeout(m, timeout))
}

// PreserveTimeout returns for how long the machine is preserved. The machine's own timeout has
// precedence over the fleet's.
func PreserveTimeout(m *v1alpha1.Machine, timeout time.Duration) time.Duration {
	if c := m.Spec.MachineConfiguration; c != nil && c.MachinePreserveTimeout != nil {
		return c.MachinePreserveTimeout.Duration
	}
	return timeout
}
