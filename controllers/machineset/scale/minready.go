package scale

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/ready"
)

// availability reports whether a machine is available; and if only time is missing, how much.
func availability(w World, m *v1alpha1.Machine) (available bool, in time.Duration) {
	return ready.Available(m, ready.MinReady(w.Set, w.CountMinReady), w.Now)
}

// nextAvailable returns the time until another machine becomes available without a change; 0 if there is none.
func nextAvailable(w World) (next time.Duration) {
	for _, m := range w.Owned {
		if _, in := availability(w, m); in > 0 && (next == 0 || in < next) {
			next = in
		}
	}
	return next
}
