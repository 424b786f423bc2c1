package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// What a class that cannot be decoded keeps from being done is reported on the machine, and done
// when the class is repaired.
func TestAMachineReportsThatItsClassCannotBeDecoded(t *testing.T) {
	breaks := func(b *bench, undecodable bool) { b.server.SetUndecodable("machineclasses", "n", "c", undecodable) }
	expect := func(b *bench, code driver.Code) {
		b.Helper()
		op := b.get().Status.LastOperation
		if op.ErrorCode != code.String() || !strings.Contains(op.Description, "cannot be decoded: provider[0]: ") {
			b.Errorf("last operation %+v, want code %s, and why the class cannot be decoded", op, code)
		}
	}
	t.Run("before it has a VM", func(t *testing.T) {
		onBench(t, func(b *bench) {
			breaks(b, true)
			b.create(withoutDeadline)
			b.pass(time.Minute)
			expect(b, driver.InvalidArgument)
			breaks(b, false)
			b.becomes(v1alpha1.MachineRunning, bootTime)
		})
	})
	t.Run("while it runs, and when it is deleted", func(t *testing.T) {
		onBench(t, func(b *bench) {
			b.create(withoutDeadline)
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			breaks(b, true)
			b.pass(time.Hour)
			if got := b.get().Status.CurrentStatus.Phase; got != v1alpha1.MachineRunning {
				t.Errorf("phase %s, want that it runs on", got)
			}
			b.delete()
			b.pass(time.Minute)
			expect(b, driver.NotFound)
			if now, _ := b.cloud.VMs(); now != 1 {
				t.Errorf("%d VMs, want 1", now)
			}
			breaks(b, false)
			b.pass(time.Hour)
			if now, _ := b.cloud.VMs(); now != 0 || b.get() != nil {
				t.Errorf("%d VMs and machine %v, want none", now, b.get())
			}
		})
	})
}

// A machine that cannot be decoded keeps its VM when it is deleted: what its drain is to be like is
// not known.
func TestADeletedMachineThatCannotBeDecodedStays(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.server.SetUndecodable("machines", "n", "m", true)
		b.pass(time.Minute)
		b.server.Delete("machines", "n", "m")
		b.pass(time.Hour)
		if now, _ := b.cloud.VMs(); now != 1 || b.server.Get("machines", "n", "m") == nil {
			t.Errorf("%d VMs, want 1, and its machine", now)
		}
		b.server.SetUndecodable("machines", "n", "m", false)
		b.pass(time.Hour)
		if now, _ := b.cloud.VMs(); now != 0 || b.get() != nil {
			t.Errorf("%d VMs and machine %v after it was repaired, want none", now, b.get())
		}
	})
}
