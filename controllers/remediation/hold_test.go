package remediation

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// A machine becomes unhealthy while deletions are held: its root has the condition and the Event, and the machine gets no disruption
// until the hold ends.
func TestHoldKeepsUnhealthyMachines(t *testing.T) {
	d := deployment()
	s := set("s", d, 10)
	during(t, []runtime.Object{d}, func(b *bench) {
		var held atomic.Bool
		for _, r := range []*Config{&b.cfg, &b.deployments.cfg, &b.sets.cfg} {
			r.Held = func(string) (string, bool) { return "annotation x of Namespace n: incident", held.Load() }
		}
		held.Store(true)
		for _, obj := range []any{class(), d, s} {
			b.feed(obj)
		}
		for i := range 10 {
			phase := v1alpha1.MachineRunning
			if i == 0 {
				phase = v1alpha1.MachineUnknown
			}
			b.join(machine(s, i, phase, time.Now()))
		}
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(5 * time.Minute)
		if c := b.deployment().Status.Conditions; len(c) > 0 {
			t.Errorf("conditions %+v while nothing waits", c)
		}
		b.wait(10 * time.Minute)
		c := machinefacts.MachineDeploymentCondition(&b.deployment().Status, v1alpha1.MachineDeploymentDeletionsHeld)
		if c == nil || c.Reason != v1alpha1.ReasonHoldAnnotation || !strings.Contains(c.Message, ": 1.") || !strings.Contains(c.Message, "Namespace n: incident") {
			t.Errorf("condition %+v", c)
		}
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v while deletions are held", got)
		}
		held.Store(false)
		b.HoldChanged("n")
		b.wait(time.Minute)
		if c := b.deployment().Status.Conditions; len(c) > 0 {
			t.Errorf("conditions %+v are left", c)
		}
		if got := disruptions(t, b.deployment()); !slices.Equal(got, []string{"s-0"}) {
			t.Errorf("disruptions for %v, want s-0", got)
		}
		events := b.events()
		if len(events) != 2 || !strings.HasPrefix(events[0], "d Warning DeletionsHeld:") || !strings.HasPrefix(events[1], "d Normal DeletionsReleased:") {
			t.Errorf("Events %q", events)
		}
	})
}
