package scale

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// availability reports whether a machine is available; and if only time is missing, how much.
func availability(w World, m *v1alpha1.Machine) (available bool, in time.Duration) {
	return machinefacts.Available(m, machinefacts.MinReady(w.Set, w.CountMinReady), w.Now)
}

// nextChange returns when, from now, time alone changes the status: another machine is available, the preservation of a failed one ends,
// or a condition; 0 when none of these is about to happen.
func nextChange(w World) (next time.Duration) {
	for _, m := range w.Owned {
		if _, in := availability(w, m); in > 0 {
			next = machinefacts.Sooner(next, in)
		}
	}
	if is := machinefacts.MachineSetCondition(&w.Set.Status, v1alpha1.MachineSetMachinesReleased); is != nil {
		next = machinefacts.Sooner(next, releasedStill(w.Now, is))
	}
	next = machinefacts.Sooner(next, lossesChange(w))
	return machinefacts.Sooner(next, machinefacts.PreservationEnds(w.Owned, w.Now))
}
