package machinefacts

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Available reports whether a machine has been available for as long as it has to be, which is 0
// where minReadySeconds does not count; and if nothing but time is missing, how much of it.
func Available(m *v1alpha1.Machine, minReady time.Duration, now time.Time) (available bool, in time.Duration) {
	is := m.Status.CurrentStatus
	if m.DeletionTimestamp != nil || is.Phase != v1alpha1.MachineRunning && is.Phase != v1alpha1.MachineAvailable {
		return false, 0
	}
	if minReady > 0 {
		in = max(is.LastUpdateTime.Add(minReady).Sub(now), 0)
	}
	return in == 0, in
}

// MinReady returns for how long the machines of a set have to be available, if that counts.
func MinReady(set *v1alpha1.MachineSet, counts bool) time.Duration {
	if !counts {
		return 0
	}
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// LateCache is how long a cache may take to show an object that the API server has. An object that
// it does not show by then was deleted before, or is in another slot, and no event has to follow:
// the API server is read again.
const LateCache = 30 * time.Second

// Sooner returns the shorter of two waits; a wait of 0 has no end.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
