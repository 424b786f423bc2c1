package machine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// A machine is created whether or not the ID of the control cluster is known; once known it is
// passed.
func TestDriverReceivesControlCluster(t *testing.T) {
	for name, c := range map[string]struct {
		never         bool
		before, after string // the ID before the machine is running, and after that
	}{
		"never known":            {never: true},
		"known":                  {before: "uid-1", after: "uid-1"},
		"known after the create": {after: "uid-1"},
	} {
		onBench(t, func(b *bench) {
			var id atomic.Pointer[string]
			id.Store(&c.before)
			b.rewire = func(w *wires) {
				if !c.never {
					w.controlCluster = func() string { return *id.Load() }
				}
			}
			b.takeOver(0)
			b.create()
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			id.Store(&c.after)
			b.delete()
			b.pass(time.Minute)
			if created, deleted := b.cloud.Calls(driver.OpCreate)[0].ControlCluster,
				b.cloud.Calls(driver.OpDelete)[0].ControlCluster; created != c.before || deleted != c.after {
				b.Errorf("%s: created with the control cluster %v and deleted with %v, want %q and %q", name, created, deleted, c.before, c.after)
			}
		})
	}
}
