package machine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// recordingDriver records the targets of the latest create and of the latest deletion.
type recordingDriver struct {
	driver.Driver

	created, deleted atomic.Pointer[driver.Target]
}

func (d *recordingDriver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	d.created.Store(&req.Target)
	return d.Driver.CreateMachine(ctx, req)
}

func (d *recordingDriver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	d.deleted.Store(&req.Target)
	return d.Driver.DeleteMachine(ctx, req)
}

// A machine is created whether or not the ID of the control cluster is known; once known it is passed.
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
			recording := &recordingDriver{Driver: b.cloud}
			b.rewire = func(w *wires) {
				w.cloud = recording
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
			if created, deleted := recording.created.Load().ControlCluster, recording.deleted.Load().ControlCluster; created != c.before || deleted != c.after {
				b.Errorf("%s: created with the control cluster %v and deleted with %v, want %q and %q", name, created, deleted, c.before, c.after)
			}
		})
	}
}
