package machinefacts

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// HasFailed reports whether the machine is in the phase Failed.
func HasFailed(m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed
}

// IsUnhealthy reports whether the machine has run and waits to recover, or to be replaced: its Node
// is unhealthy, or could not be updated in place.
func IsUnhealthy(m *v1alpha1.Machine) bool {
	phase := m.Status.CurrentStatus.Phase
	return phase == v1alpha1.MachineUnknown || phase == v1alpha1.MachineInPlaceUpdateFailed
}

// HasFailedHealth reports whether the machine has failed and was a healthy Node before.
func HasFailedHealth(m *v1alpha1.Machine) bool {
	return HasFailed(m) && m.Status.LastOperation.Type != v1alpha1.MachineOperationCreate
}

// NeverRan reports whether the machine has never been a healthy Node, so that no pod can have run
// on it: it has no VM yet, its VM could not be created, or it did not join within the creation
// timeout. One whose VM exists and may be about to join does not count.
func NeverRan(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // in all other phases it may have run
	case "":
		return m.Spec.ProviderID == ""
	case v1alpha1.MachineCrashLoopBackOff:
		return true
	}
	return HasFailed(m) && !HasFailedHealth(m)
}

// IsReady reports whether the machine counts for readyReplicas: it runs and is not being deleted.
func IsReady(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning
}
