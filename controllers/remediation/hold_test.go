package remediation

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// A machine becomes unhealthy while deletions are held: its root has the condition and the Event,
// and the machine gets no disruption until the hold ends.
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
		if c == nil || c.Reason != v1alpha1.ReasonHoldAnnotation || !strings.Contains(c.Message, ": 1.") ||
			!strings.Contains(c.Message, "Namespace n: incident") {
			t.Errorf("condition %+v", c)
		}
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v while deletions are held", got)
		}
		b.join(machine(s, 1, v1alpha1.MachineUnknown, time.Now().Add(-10*time.Minute))) // no further Event
		b.wait(time.Minute)
		if n := b.Waiting(); n != 2 {
			t.Errorf("%d machines wait, want 2", n)
		}
		held.Store(false)
		b.HoldChanged("n")
		b.wait(time.Minute)
		if c := b.deployment().Status.Conditions; len(c) > 0 {
			t.Errorf("conditions %+v are left", c)
		}
		if got := disruptions(t, b.deployment()); len(got) != 1 {
			t.Errorf("disruptions for %v, want one", got)
		}
		if n := b.Waiting(); n != 0 {
			t.Errorf("%d machines wait after the hold", n)
		}
		events := b.events()
		if len(events) != 2 || !strings.HasPrefix(events[0], "d Warning DeletionsHeld:") ||
			!strings.HasPrefix(events[1], "d Normal DeletionsReleased:") {
			t.Errorf("Events %q", events)
		}
	})
}

// Machines of a root that has left this process's slots do not count as waiting, and do not when it
// returns.
func TestWaitingMachinesOfOtherSlotsDoNotCount(t *testing.T) {
	d := deployment()
	s := set("s", d, 0)
	during(t, []runtime.Object{d}, func(b *bench) {
		b.deployments.cfg.Held = func(string) (string, bool) { return "annotation x", true }
		for _, obj := range []any{class(), s, machine(s, 0, v1alpha1.MachineRunning, time.Now())} {
			b.feed(obj)
		}
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(time.Minute)
		b.feed(d)
		b.wait(time.Minute)
		if n := b.Waiting(); n != 1 {
			t.Errorf("%d machines wait, want 1", n)
		}
		b.view.Deployments.Remove(objectcache.Key(d), "")
		if n := b.Waiting(); n != 0 {
			t.Errorf("%d machines wait below a root that is not there", n)
		}
		if _, left := b.deployments.waiting.Load(d.UID); left {
			t.Error("the number of machines that wait is kept after its root")
		}
		if _, left := b.deployments.seen.Load(d.UID); left {
			t.Error("the status of a root that returns is not read")
		}
	})
}
