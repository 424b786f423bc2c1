package scale

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestFrozenEndsWithItsLabel: whoever froze the set has said why, and that stands for as long as the label does.
func TestFrozenEndsWithItsLabel(t *testing.T) {
	for label, want := range map[string]bool{"True": true, "true": false, "": false} {
		set := &v1alpha1.MachineSet{}
		set.Labels = map[string]string{v1alpha1.LabelFreeze: label}
		frozen := v1alpha1.MachineSetCondition{
			Type: v1alpha1.MachineSetFrozen, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonOverShootingReplicaCount, Message: "too many",
		}
		set.Status.Conditions = []v1alpha1.MachineSetCondition{frozen}
		if got := slices.Contains(status(World{Set: set}).Conditions, frozen); got != want {
			t.Errorf("freeze=%q: the condition is there: %v, want %v", label, got, want)
		}
	}
}
