package machine

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// A driver gets the note of its last answer with its next call, whichever process makes that.
func TestADriverHasItsNoteBack(t *testing.T) {
	for name, tc := range map[string]struct {
		op    driver.Op
		begin func(b *bench)
	}{
		"a create fails": {driver.OpCreate, func(b *bench) {
			b.cloud.fails(testFault{code: driver.Internal}, driver.OpCreate)
			b.create()
		}},
		"a delete fails": {driver.OpDelete, func(b *bench) {
			b.runs()
			b.cloud.fails(testFault{code: driver.Internal}, driver.OpDelete)
			b.delete()
		}},
		"a VM takes its time to end": {driver.OpDelete, func(b *bench) {
			b.cloud.stops = time.Hour
			b.runs()
			b.delete()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.notes = true
				tc.begin(b)
				b.pass(time.Millisecond)
				first := len(b.cloud.log(tc.op))
				left := b.cloud.note()
				if got := b.get().Status.LastKnownState; got != left {
					t.Errorf("the machine has %q, want %q", got, left)
				}
				b.takeOver(time.Second)
				b.pass(10 * time.Second)
				calls := b.cloud.log(tc.op)
				if len(calls) == first || calls[first].note != left {
					t.Errorf("the next of the calls %+v should have %q", calls[first-1:], left)
				}
			})
		})
	}
}

// A note of a created VM is kept, also if its initialization fails.
func TestADriverHasTheNoteOfItsVMBack(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.notes = true
		b.cloud.fails(testFault{code: driver.Internal}, driver.OpInitialize)
		b.create(patient)
		b.pass(time.Second)
		left := b.get().Status.LastKnownState
		if left == "" {
			t.Error("the machine has no note")
		}
		b.cloud.works()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.delete()
		b.pass(time.Second)
		if calls := b.cloud.log(driver.OpDelete); len(calls) != 1 || calls[0].note != left {
			t.Errorf("calls %+v, want one with %q", calls, left)
		}
	})
}
