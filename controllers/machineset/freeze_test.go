package machineset

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestUnfreeze: a frozen set creates no machines and reports that, until the end of the freeze is
// requested: then no trace is left.
func TestUnfreeze(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(2, func(set *v1alpha1.MachineSet) { set.Labels[v1alpha1.LabelFreeze] = "True" })
		if n := len(b.machines()); n > 0 || !b.reportsFrozen() {
			b.Errorf("frozen: %d machines, conditions %v", n, b.set().Status.Conditions)
		}
		b.patch(`{"metadata":{"annotations":{%q:""}}}`, v1alpha1.AnnotationUnfreeze)
		b.pass(time.Minute)
		set := b.set()
		_, labelled := set.Labels[v1alpha1.LabelFreeze]
		_, requested := set.Annotations[v1alpha1.AnnotationUnfreeze]
		if n := len(b.machines()); n != 2 || labelled || requested || b.reportsFrozen() {
			b.Errorf("unfrozen: %d machines, labels %v, annotations %v, conditions %v", n, set.Labels, set.Annotations, set.Status.Conditions)
		}
	})
}

func (b *bench) reportsFrozen() bool {
	b.Helper()
	return slices.ContainsFunc(b.set().Status.Conditions, func(c v1alpha1.MachineSetCondition) bool {
		return c.Type == v1alpha1.MachineSetFrozen && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.ReasonFreezeLabel
	})
}
