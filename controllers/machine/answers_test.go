package machine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A VM that the driver cannot name, or names only in part, is deleted with its machine.
func TestVMThatTheDriverDescribesBadlyIsDeletedWithItsMachine(t *testing.T) {
	const long = "a-name-with-more-characters-than-the-value-of-a-label-of-a-node-has"
	for name, tc := range map[string]struct {
		created func(*fakecloud.Resource)
		id      string // that the machine records
	}{
		"the node name is no label value": {func(vm *fakecloud.Resource) { vm.NodeName = long }, "test:///i-1"},
		"the provider ID is invalid":      {func(vm *fakecloud.Resource) { vm.ID = "test:/// 1" }, ""},
		"both are": {
			func(vm *fakecloud.Resource) { vm.ID, vm.NodeName = strings.Repeat("x", driver.MaxProviderID+1), long }, "",
		},
		"both are empty": {func(vm *fakecloud.Resource) { vm.ID, vm.NodeName = "", "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Created, b.cloud.Twins = tc.created, false
				b.create(withoutDeadline)
				b.becomes(v1alpha1.MachineCrashLoopBackOff, time.Minute)
				if got := b.get().Spec.ProviderID; got != tc.id {
					t.Errorf("the machine records the provider ID %q, want %q", got, tc.id)
				}
				b.delete()
				b.pass(time.Minute)
				if now, ever := b.cloud.VMs(); now != 0 || ever != 1 {
					t.Errorf("%d VMs of %d are left", now, ever)
				}
				if left := b.left(); len(left) > 0 {
					t.Errorf("%v are left", left)
				}
			})
		})
	}
}

// No VM is requested for a machine whose name its Node cannot have.
func TestMachineWhoseNameIsNoLabelValueRequestsNoVM(t *testing.T) {
	onBench(t, func(b *bench) {
		m := b.create(withoutDeadline, func(m *v1alpha1.Machine) { m.Name = strings.Repeat("m", 64) })
		b.pass(time.Minute)
		got, err := b.server.Machines().Machines("n").Get(b.Context(), m.Name, metav1.GetOptions{})
		b.must(err)
		if calls := b.cloud.Calls(""); len(calls) > 0 || got.Status.CurrentStatus.Phase != v1alpha1.MachineCrashLoopBackOff {
			t.Errorf("%d calls of the driver, phase %s: %+v", len(calls), got.Status.CurrentStatus.Phase, got.Status.LastOperation)
		}
	})
}

// A machine of which the cloud has several VMs, and that names none of them, is deleted with all of
// them.
func TestMachineWithSeveralVMsIsDeleted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.DeadlineExceeded, TakesEffect: true}, driver.OpCreate)
		b.create(withoutDeadline)
		b.pass(time.Second)
		b.cloud.Fail(fakecloud.Fault{Code: driver.OutOfRange}, driver.OpStatus)
		b.delete()
		b.pass(time.Minute)
		if now, _ := b.cloud.VMs(); now != 0 || b.get() != nil {
			t.Errorf("%d VMs are left, and the machine %+v", now, b.get())
		}
	})
}
