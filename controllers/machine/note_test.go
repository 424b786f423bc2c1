package machine

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A driver gets the note of its last answer with its next call, whichever process sends that.
func TestADriverHasItsNoteBack(t *testing.T) {
	for name, tc := range map[string]struct {
		op    driver.Op
		begin func(b *bench)
	}{
		"a create fails": {driver.OpCreate, func(b *bench) {
			b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
			b.create()
		}},
		"a delete fails": {driver.OpDelete, func(b *bench) {
			b.runs()
			b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpDelete)
			b.delete()
		}},
		"a VM takes its time to end": {driver.OpDelete, func(b *bench) {
			b.cloud.Stops = time.Hour
			b.runs()
			b.delete()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Notes = true
				tc.begin(b)
				b.pass(time.Millisecond)
				first := len(b.cloud.Calls(tc.op))
				left := b.cloud.Note()
				if got := b.get().Status.LastKnownState; got != left {
					t.Errorf("the machine has %q, want %q", got, left)
				}
				b.takeOver(time.Second)
				b.pass(10 * time.Second)
				calls := b.cloud.Calls(tc.op)
				if len(calls) == first || calls[first].Note != left {
					t.Errorf("the next of the calls %+v should have %q", calls[first-1:], left)
				}
			})
		})
	}
}

// A note of a created VM is kept, also if its initialization fails.
func TestADriverHasTheNoteOfItsVMBack(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Notes = true
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpInitialize)
		b.create(withoutDeadline)
		b.pass(time.Second)
		left := b.get().Status.LastKnownState
		if left == "" {
			t.Error("the machine has no note")
		}
		b.cloud.Work()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.delete()
		b.pass(time.Second)
		if calls := b.cloud.Calls(driver.OpDelete); len(calls) != 1 || calls[0].Note != left {
			t.Errorf("calls %+v, want one with %q", calls, left)
		}
	})
}
