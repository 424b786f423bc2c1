package scale

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/ready"
)

// availability says whether a machine is available; and if nothing but time is missing, how much of it.
func availability(w World, m *v1alpha1.Machine) (available bool, in time.Duration) {
	return ready.Available(m, ready.MinReady(w.Set, w.CountMinReady), w.Now)
}

// nextAvailable is when, from now, another machine is available unless something happens to it; 0 when none is about to be.
func nextAvailable(w World) (next time.Duration) {
	for _, m := range w.Owned {
		if _, in := availability(w, m); in > 0 && (next == 0 || in < next) {
			next = in
		}
	}
	return next
}
