package scale

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// TestFrozenConditionFollowsTheLabel: the reason of the controller that froze the set is kept as long as the label.
func TestFrozenConditionFollowsTheLabel(t *testing.T) {
	frozen := func(status corev1.ConditionStatus, reason string) *v1alpha1.MachineSetCondition {
		return &v1alpha1.MachineSetCondition{Type: v1alpha1.MachineSetFrozen, Status: status, Reason: reason}
	}
	reported := frozen(corev1.ConditionTrue, v1alpha1.ReasonOverShootingReplicaCount)
	for _, tc := range []struct {
		name, label  string
		before, want *v1alpha1.MachineSetCondition
	}{
		{"never", "", nil, nil},
		{"with a reason", "True", reported, reported},
		{"without a reason", "True", nil, frozen(corev1.ConditionTrue, v1alpha1.ReasonFreezeLabel)},
		{"again", "True", frozen(corev1.ConditionFalse, "Thawed"), frozen(corev1.ConditionTrue, v1alpha1.ReasonFreezeLabel)},
		{"no label any more", "", reported, nil},
		{"only True freezes", "true", reported, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{}
			set.Labels = map[string]string{v1alpha1.LabelFreeze: tc.label}
			if tc.before != nil {
				set.Status.Conditions = []v1alpha1.MachineSetCondition{*tc.before}
			}
			is := status(World{Set: set})
			got := machinefacts.MachineSetCondition(&is, v1alpha1.MachineSetFrozen)
			if got != nil {
				got.LastTransitionTime, got.Message = metav1.Time{}, ""
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}
