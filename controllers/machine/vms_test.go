package machine

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A create that was sent may have created a VM, regardless of which kind of error it returns:
// without the class to look for it, the machine is not released.
func TestUntypedErrorMayLeaveAVM(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Bare: true, TakesEffect: true}, driver.OpCreate)
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineCrashLoopBackOff, time.Minute)
		b.patchClass(`{"metadata":{"finalizers":null}}`)
		b.server.Delete("machineclasses", "n", "c")
		b.delete()
		b.pass(time.Minute)
		if now, _ := b.cloud.VMs(); now != 1 || b.get() == nil {
			t.Fatalf("%d VMs, machine %v; want both left", now, b.get())
		}
		b.createClass()
		b.pass(time.Minute)
		if now, _ := b.cloud.VMs(); now != 0 || b.get() != nil {
			t.Errorf("%d VMs, machine %v", now, b.get())
		}
	})
}
