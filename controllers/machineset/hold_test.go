package machineset

import (
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// While deletions are held, a set that is scaled down keeps the machines that run. When the hold
// ends they are deleted at once.
func TestHoldKeepsMachines(t *testing.T) {
	var held atomic.Bool
	held.Store(true)
	onBench(t, func(b *bench) {
		isController := true
		b.create(3, func(set *v1alpha1.MachineSet) {
			set.OwnerReferences = []metav1.OwnerReference{{Controller: &isController}}
		})
		isReported := func() bool {
			return machinefacts.MachineSetCondition(&b.set().Status, v1alpha1.MachineSetDeletionsHeld) != nil
		}
		for _, m := range b.machines() {
			b.runs(m.Name)
		}
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Hour)
		if n := len(b.machines()); n != 3 {
			b.Errorf("%d machines while deletions are held, want 3", n)
		}
		if !isReported() {
			b.Error("the set does not report that its deletions are held")
		}
		held.Store(false)
		b.controller.HoldChanged("other")
		b.pass(time.Second)
		if n := b.standing(); n != 3 {
			b.Errorf("%d machines after a change in another namespace, want 3", n)
		}
		b.controller.HoldChanged("n")
		b.pass(time.Second)
		if n := b.standing(); n != 1 {
			b.Errorf("%d machines after the hold, want 1", n)
		}
		if isReported() {
			b.Error("the set reports a hold that has ended")
		}
	}, func(cfg *Config) {
		cfg.Held = func(string) (string, bool) { return "annotation", held.Load() }
	})
}
