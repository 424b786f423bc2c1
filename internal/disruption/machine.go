package disruption

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// stage is how far a machine is, as the limit of its root counts.
type stage int

const (
	// steady: it runs, or it is unhealthy; no replacement has begun.
	steady stage = iota
	// failed: it has failed, and its replacement has not begun.
	failed
	// coming: it has to become a healthy Node, for the first time or after its update in place.
	coming
	// leaving: it is being deleted.
	leaving
	// preserved: it has failed and is preserved.
	preserved
)

func stageOf(m *v1alpha1.Machine, now time.Time) stage {
	phase := m.Status.CurrentStatus.Phase
	switch {
	case m.DeletionTimestamp != nil:
		return leaving
	case phase == v1alpha1.MachineFailed && machinefacts.IsKept(m, now):
		return preserved
	case phase == v1alpha1.MachineFailed:
		return failed
	case phase == v1alpha1.MachineRunning, phase == v1alpha1.MachineAvailable, machinefacts.IsUnhealthy(m):
		return steady
	}
	return coming
}
