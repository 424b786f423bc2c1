package machine

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

func ops(calls []fakecloud.Call) (names []driver.Op) {
	for _, call := range calls {
		names = append(names, call.Op)
	}
	return names
}

func TestALifeFromEndToEnd(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		if took := b.becomes(v1alpha1.MachineRunning, time.Minute); took > bootTime {
			t.Errorf("it took %s to run, the VM boots in %s", took, bootTime)
		}
		calls := b.cloud.Calls("")
		if want := []driver.Op{driver.OpStatus, driver.OpCreate, driver.OpInitialize}; !slices.Equal(ops(calls), want) {
			t.Errorf("calls %v, want %v", ops(calls), want)
		}
		if !regexp.MustCompile(`^join [a-z0-9]{6}\.[a-z0-9]{16} as m$`).MatchString(calls[1].UserData) {
			t.Errorf("user data %q", calls[1].UserData)
		}
		if left := b.left(); !slices.Equal(left, []string{"Node m"}) {
			t.Errorf("in the target cluster are %v, want the Node, and no token any more", left)
		}
		b.delete()
		b.pass(time.Second)
		if now, ever := b.cloud.VMs(); b.get() != nil || now != 0 || ever != 1 || len(b.left()) > 0 {
			t.Errorf("left: machine %v, %d of %d VMs, %v", b.get(), now, ever, b.left())
		}
	})
}

// What a machine writes from its creation to its end, regardless of what it costs to hold its class
// and Secret, which others do not pay again.
func TestALifeTakesFewWrites(t *testing.T) {
	onBench(t, func(b *bench) {
		k := newKiller(b, func(int) moment { return never })
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.delete()
		b.pass(time.Minute)
		writes := slices.DeleteFunc(k.calls, func(call string) bool { return !strings.Contains(call, " ") }) // the cloud's have none
		want := []string{
			"patch machines",        // gets our finalizer
			"patch machineclasses",  // is held
			"update secrets",        // is held
			"create secrets",        // the token
			"patch machines",        // knows its VM
			"patch machines/status", // is Pending
			"patch nodes",           // is claimed
			"delete secrets",        // the token
			"patch machines/status", // is Running
			"patch nodes",           // is cordoned
			"patch nodes/status",    // marks that its machine is deleted, and releases the Node
			"patch machines/status", // is Terminating
			"delete nodes",
			"patch machines", // loses our finalizer
		}
		if diff := cmp.Diff(want, writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

// A VM that its driver cannot look for is known to the driver only.
func TestDriverWithoutMachineStatus(t *testing.T) {
	cannotLook := func(op driver.Op) *fakecloud.Fault {
		if op == driver.OpStatus {
			return &fakecloud.Fault{Code: driver.Unimplemented}
		}
		return nil
	}
	for name, tc := range map[string]struct {
		also   fakecloud.Fault
		op     driver.Op
		before time.Duration // the machine is deleted after that; 0 means when it runs
	}{
		"no error":             {op: "none"},
		"the create times out": {fakecloud.Fault{Code: driver.DeadlineExceeded, TakesEffect: true}, driver.OpCreate, 2 * time.Second},
		"the VM is not set up": {fakecloud.Fault{Code: driver.Internal}, driver.OpInitialize, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Twins = false
				b.cloud.FailIf(func(op driver.Op) *fakecloud.Fault {
					if op == tc.op {
						return &tc.also
					}
					return cannotLook(op)
				})
				b.create(withoutDeadline)
				b.pass(tc.before)
				if tc.before == 0 {
					b.becomes(v1alpha1.MachineRunning, time.Minute)
				}
				b.takeOver(0) // what is not written down is not known
				b.delete()
				b.pass(time.Minute)
				if now, ever := b.cloud.VMs(); b.get() != nil || now != 0 || ever != 1 || len(b.left()) > 0 {
					t.Errorf("left: machine %v, %d of %d VMs, %v", b.get(), now, ever, b.left())
				}
			})
		})
	}
}

// A machine that is deleted before its VM has joined deletes the token.
func TestTokenIsDeletedWithItsMachine(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Created = func(*fakecloud.Resource) {} // it never boots
		b.create()
		b.becomes(v1alpha1.MachinePending, time.Minute)
		if left := b.left(); len(left) != 1 {
			t.Errorf("in the target cluster are %v, want the token", left)
		}
		b.delete()
		b.pass(time.Second)
		if b.get() != nil || len(b.left()) > 0 {
			t.Errorf("left: machine %v, %v", b.get(), b.left())
		}
	})
}
