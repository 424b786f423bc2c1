package machine

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// requested returns the Machine for which the class requests a sweep; "" for none.
func (b *bench) requested() string {
	class := apiserver.Read[v1alpha1.MachineClass](b.server, "machineclasses", "n", "c")
	return class.Annotations[v1alpha1.AnnotationSweepRequested]
}

// A machine of which the cloud has several VMs requests one sweep, however often the cloud answers
// so, whichever replica calls it.
func TestSeveralVMsRequestOneSweep(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpStatus)
		b.create(withoutDeadline)
		b.pass(time.Second)
		if got := b.requested(); got != "" {
			t.Fatalf("a sweep for %q is requested for another error", got)
		}
		b.cloud.Fail(fakecloud.Fault{Code: driver.OutOfRange}, driver.OpStatus)
		b.pass(5 * time.Minute)
		if got := b.requested(); got != "m" {
			t.Fatalf("a sweep for %q is requested, want m", got)
		}
		b.patchClass(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationSweepRequested + `":null}}}`) // the leader has served it
		b.pass(30 * time.Minute)
		b.takeOver(time.Minute)
		b.pass(30 * time.Minute)
		if got := b.requested(); got != "" {
			t.Fatalf("a sweep for %q is requested again for the same occurrence", got)
		}
		b.cloud.Work()
		b.becomes(v1alpha1.MachineRunning, 10*time.Minute)
	})
}

// The request of another machine of the class, which the leader has not served, counts for all.
func TestSweepRequestThatIsNotServedIsKept(t *testing.T) {
	onBench(t, func(b *bench) {
		b.patchClass(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationSweepRequested + `":"other"}}}`)
		b.cloud.Fail(fakecloud.Fault{Code: driver.OutOfRange}, driver.OpStatus)
		b.create(withoutDeadline)
		b.pass(5 * time.Minute)
		if got := b.requested(); got != "other" {
			t.Errorf("a sweep for %q is requested, want the one for other", got)
		}
		if last := b.get().Status.LastOperation; last.ErrorCode != driver.OutOfRange.String() {
			t.Errorf("the last operation is %+v", last)
		}
	})
}
