package machine

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// A create that fails part-way can leave network interfaces and disks, and only DeleteMachine removes them: it is called although
// there is no VM, and once, whichever process sees to the machine.
func TestLeftoversOfAFailedCreateAreRemoved(t *testing.T) {
	for name, between := range map[string]func(b *bench){
		"same process":    func(*bench) {},
		"another process": func(b *bench) { b.takeOver(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.leaves = true
				b.cloud.fails(testFault{code: driver.Internal}, driver.OpCreate)
				b.create(patient)
				b.pass(time.Second)
				if len(b.cloud.leftovers()) == 0 {
					t.Fatal("the create that failed has left nothing")
				}
				between(b)
				b.delete()
				b.pass(time.Minute)
				if left := b.cloud.leftovers(); len(left) > 0 || b.get() != nil {
					t.Errorf("machine %v, left-overs of %v; want none", b.get(), left)
				}
				if calls := b.cloud.log(driver.OpDelete); len(calls) != 1 {
					t.Errorf("%d calls of DeleteMachine, want 1", len(calls))
				}
			})
		})
	}
}
