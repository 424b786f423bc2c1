package machinedeployment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestUnfreeze: a deployment shows that one of its sets is frozen, by its label and its condition,
// and for as long as that lasts. With the annotation that requests it, all its sets are unfrozen,
// and label, condition and annotation are removed.
func TestUnfreeze(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
		b.pass(time.Minute)
		sets := b.sets()
		if len(sets) != 2 {
			b.Fatalf("%d sets, want an old one and a new one", len(sets))
		}
		b.freezes("nothing was said", false)
		b.patch(`{"metadata":{"labels":{%q:"True"}}}`, v1alpha1.LabelFreeze)
		b.pass(time.Minute)
		b.freezes("its label alone", false)
		b.freeze(sets[0].Name, `"True"`)
		b.freezes("one set", true)
		b.freeze(sets[0].Name, "null")
		b.freezes("no set any more", false)
		b.freeze(sets[0].Name, `"True"`)
		b.freeze(sets[1].Name, `"True"`)
		b.freezes("both sets", true)
		b.patch(`{"metadata":{"annotations":{%q:""}}}`, v1alpha1.AnnotationUnfreeze)
		b.pass(time.Minute)
		b.freezes("asked to end it", false)
		b.freeze(sets[0].Name, `"True"`)
		b.freezes("again", true)
	})
}

// freeze puts the label on a set; null takes it off.
func (b *bench) freeze(set, label string) {
	b.Helper()
	b.server.Merge("machinesets", "n", set, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelFreeze, label))
	b.pass(time.Minute)
}

// freezes checks what the deployment says, and that where it is not frozen no set is.
func (b *bench) freezes(when string, want bool) {
	b.Helper()
	d := b.deployment()
	reported := slices.ContainsFunc(d.Status.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
		return c.Type == v1alpha1.MachineDeploymentFrozen && c.Status == corev1.ConditionTrue &&
			c.Reason == v1alpha1.ReasonMachineDeploymentStateSync
	})
	_, requested := d.Annotations[v1alpha1.AnnotationUnfreeze]
	if labelled := d.Labels[v1alpha1.LabelFreeze] == "True"; labelled != want || reported != want || requested {
		b.Errorf("%s: labels %v, annotations %v, conditions %v; want it frozen: %v", when, d.Labels, d.Annotations, d.Status.Conditions, want)
	}
	for _, set := range b.sets() {
		_, known := set.Annotations[v1alpha1.AnnotationUnfreeze]
		if _, labelled := set.Labels[v1alpha1.LabelFreeze]; labelled && !want || known {
			b.Errorf("%s: set %s has labels %v, annotations %v", when, set.Name, set.Labels, set.Annotations)
		}
	}
}
