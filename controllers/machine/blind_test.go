package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// One kind that the fleet may not list is enough to block a drain; it is reported long before the
// timeout.
func TestDrainReportsWhyItCannotWatch(t *testing.T) {
	for _, resource := range []string{
		"poddisruptionbudgets", "persistentvolumeclaims", "persistentvolumes", "volumeattachments", "csidrivers",
	} {
		t.Run(resource, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.runs()
				b.pod("web")
				refuses(b.target, "list "+resource, forbidden(resource))
				b.delete()
				b.pass(4 * time.Second)
				if got := b.get().Status.LastOperation; got.State != v1alpha1.MachineStateProcessing {
					t.Errorf("at first: %+v", got)
				}
				b.pass(2 * time.Second)
				last := b.get().Status.LastOperation
				if last.Type != v1alpha1.MachineOperationDelete || last.State != v1alpha1.MachineStateFailed ||
					!strings.Contains(last.Description, resource) {
					t.Errorf("when it has lasted: %+v", last)
				}
				b.pass(time.Hour)
				if got := b.reported.Count(v1alpha1.EventReason{Reason: v1alpha1.EventDrainBlocked, Warning: true}); got != 1 {
					t.Errorf("%d Events, want one", got)
				}
				b.pass(time.Hour) // the drain timeout
				b.pass(10 * time.Minute)
				if b.get() != nil {
					t.Errorf("after the timeout: %+v", b.get().Status.LastOperation)
				}
			})
		})
	}
}
