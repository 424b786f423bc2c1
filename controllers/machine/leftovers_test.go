package machine

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A create that fails part-way can leave network interfaces and disks, and only DeleteMachine
// removes them: it is called although there is no VM, and once, whichever process handles the
// machine.
func TestLeftoversOfAFailedCreateAreRemoved(t *testing.T) {
	for name, between := range map[string]func(b *bench){
		"same process":    func(*bench) {},
		"another process": func(b *bench) { b.takeOver(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Leaves = true
				b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
				b.create(withoutDeadline)
				b.pass(time.Second)
				if len(b.cloud.Live()) == 0 {
					t.Fatal("the create that failed has left nothing")
				}
				between(b)
				b.delete()
				b.pass(time.Minute)
				if left := b.cloud.Live(); len(left) > 0 || b.get() != nil {
					t.Errorf("machine %v, left-overs of %v; want none", b.get(), left)
				}
				if calls := b.cloud.Calls(driver.OpDelete); len(calls) != 1 {
					t.Errorf("%d calls of DeleteMachine, want 1", len(calls))
				}
			})
		})
	}
}
