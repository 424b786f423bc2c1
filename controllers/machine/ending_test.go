package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// TestVMsThatEndSlowlyArePolled makes VMs stop for longer and longer. The delay that the fleet adds
// stays small, and so does the number of its requests to the cloud.
func TestVMsThatEndSlowlyArePolled(t *testing.T) {
	for _, tc := range []struct {
		stops, more time.Duration
		calls       int
	}{
		{0, 0, 1},
		{100 * time.Millisecond, 250 * time.Millisecond, 2},
		{2 * time.Second, time.Second / 2, 10},
		{4 * time.Second, time.Second, 13},
		{time.Minute, 10 * time.Second, 25},
		{10 * time.Minute, 10 * time.Second, 80},
	} {
		t.Run(tc.stops.String(), func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Stops = tc.stops
				b.runs()
				b.delete()
				deleted := time.Now()
				b.pass(0)
				for b.get() != nil && time.Since(deleted) < tc.stops+time.Hour {
					b.pass(10 * time.Millisecond)
				}
				if more := time.Since(deleted) - tc.stops; more > tc.more+10*time.Millisecond {
					t.Errorf("the machine took %s longer than its VM, want at most %s", more, tc.more)
				}
				if calls := len(b.cloud.Calls(driver.OpDelete)); calls > tc.calls {
					t.Errorf("the cloud got %d requests, want at most %d", calls, tc.calls)
				}
				if now, _ := b.cloud.VMs(); now > 0 || len(b.left()) > 0 {
					t.Errorf("left: %d VMs, %v", now, b.left())
				}
			})
		})
	}
}

// More passes for a machine cause no more requests to the cloud; and a process that takes over
// sends one at once.
func TestEndingVMIsNotPolledByOtherPasses(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Stops = 10 * time.Hour
		b.runs()
		b.delete()
		b.pass(time.Hour)
		asked := len(b.cloud.Calls(driver.OpDelete))
		for i := range 100 {
			b.patchMachine(fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, i))
			b.pass(10 * time.Millisecond)
		}
		if more := len(b.cloud.Calls(driver.OpDelete)) - asked; more > 1 {
			t.Errorf("the cloud got %d requests in a second", more)
		}
		b.takeOver(0)
		b.pass(time.Millisecond)
		if more := len(b.cloud.Calls(driver.OpDelete)) - asked; more == 0 {
			t.Error("the next process does not know how far the deletion is, and does not ask")
		}
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpDelete)
		b.pass(time.Minute)
		if last := b.get().Status.LastOperation; last.ErrorCode != driver.Internal.String() {
			t.Errorf("the cloud returns no status of the VM, and the machine reports %+v", last)
		}
		asked = len(b.cloud.Calls(driver.OpDelete))
		b.pass(10 * time.Minute)
		if more := len(b.cloud.Calls(driver.OpDelete)) - asked; more > 5 {
			t.Errorf("the cloud fails, and got %d requests in 10 min", more)
		}
	})
}

// A hundred VMs that take a minute to stop.
func TestAHundredEndingVMs(t *testing.T) {
	const machines = 100
	onBench(t, func(b *bench) {
		b.cloud.Stops = time.Minute
		for i := range machines {
			b.create(func(m *v1alpha1.Machine) { m.Name = fmt.Sprintf("m-%d", i) })
		}
		b.pass(time.Minute)
		for i := range machines {
			b.server.Delete("machines", "n", fmt.Sprintf("m-%d", i))
		}
		b.pass(b.cloud.Stops + 11*time.Second)
		if now, ever := b.cloud.VMs(); now > 0 || ever != machines || len(b.left()) > 0 {
			t.Errorf("left: %d of %d VMs, %v", now, ever, b.left())
		}
		if calls := len(b.cloud.Calls(driver.OpDelete)); calls > 25*machines {
			t.Errorf("the cloud got %d requests", calls)
		}
	})
}
