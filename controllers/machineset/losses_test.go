package machineset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// fails has all machines fail, and allows the set to replace them.
func (b *bench) fails() {
	b.Helper()
	var allowed []disruption.Disruption
	for _, m := range b.machines() {
		allowed = append(allowed, disruption.Disruption{Name: m.Name, UID: m.UID})
		if m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed {
			b.patchMachine(m.Name, `{"status":{"currentStatus":{"phase":"Failed"}}}`, "status")
		}
	}
	set := b.set()
	disruption.WriteDisruptions(set, allowed)
	b.patch(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationDisruptions, set.Annotations[v1alpha1.AnnotationDisruptions])
}

// Machines that fail as soon as they exist are created at most as often as the delays allow.
// Without them it was one a second.
func TestSetWhoseMachinesFailCreatesThemWithDelays(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(1)
		began, created := time.Now(), b.server.Count("create machines")
		var after []string
		for time.Since(began) < 30*time.Minute {
			b.fails()
			b.pass(time.Second)
			if n := b.server.Count("create machines"); n != created {
				after, created = append(after, time.Since(began).Round(10*time.Second).String()), n
			}
		}
		if diff := cmp.Diff([]string{"0s", "10s", "30s", "1m10s", "2m30s", "5m10s", "10m30s", "16m30s", "22m30s", "28m30s"}, after); diff != "" {
			t.Errorf("machines were created after (-want +got):\n%s", diff)
		}
		if is := machinefacts.MachineSetCondition(&b.set().Status, v1alpha1.MachineSetCreationDelayed); is == nil {
			t.Error("no condition CreationDelayed")
		}

		b.patch(`{"spec":{"minReadySeconds":5}}`)
		b.pass(time.Second)
		if n := b.server.Count("create machines"); n != created+1 {
			t.Errorf("after a change of the spec %d machines were created, want 1", n-created)
		}
		b.pass(machinefacts.EarlyFailure + time.Minute)
		if is := machinefacts.MachineSetCondition(&b.set().Status, v1alpha1.MachineSetCreationDelayed); is != nil {
			t.Errorf("a machine lives, and the condition is %v", is)
		}
	})
}
