package remediation

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// A machine that cannot be decoded exists: it does not count as one that is being created, for
// which others would have to wait.
func TestUndecodableMachineDelaysNoRemediation(t *testing.T) {
	d := deployment()
	s := set("s", d, 6)
	during(t, []runtime.Object{d}, func(b *bench) {
		gone := set("gone", d, 3) // a set in deletion lacks no machines
		now := metav1.Now()
		gone.DeletionTimestamp = &now
		for _, obj := range []any{class(), d, s, gone} {
			b.feed(obj)
		}
		for i := range 6 {
			b.feed(machine(s, i, v1alpha1.MachineRunning, time.Now()))
		}
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(time.Minute)
		bad, _ := b.view.Machines.Get(objectcache.Key(machine(s, 0, "", time.Now())))
		b.view.Machines.Remove(objectcache.Key(bad), "")
		b.feed(machine(s, 1, v1alpha1.MachineUnknown, time.Now()))
		b.wait(30 * time.Minute)
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions %v while a machine is missing", got)
		}
		b.view.Machines.Undecodable.Apply(&decode.Failure{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: bad.ObjectMeta}}, false)
		unknown := machine(set("unknown", d, 1), 0, "", now.Time)
		b.view.Machines.Undecodable.Apply(&decode.Failure{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: unknown.ObjectMeta}},
			false)
		b.wait(time.Minute)
		if got := disruptions(t, b.deployment()); !slices.Equal(got, []string{"s-1"}) {
			t.Errorf("disruptions %v, want one for the machine that is unhealthy", got)
		}
	})
}
