package machinefacts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestEndInPlaceUpdate(t *testing.T) {
	other := corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoExecute}
	awaits := corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule}
	updated := corev1.NodeCondition{
		Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeReasonUpdateSuccessful,
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{
				"other": "stays", v1alpha1.LabelCandidateForUpdate: "true", v1alpha1.LabelSelectedForUpdate: "true",
				v1alpha1.LabelUpdateResult: v1alpha1.UpdateResultSuccessful,
			},
			Annotations: map[string]string{"other": "stays", v1alpha1.AnnotationUpdateTo: "set", v1alpha1.AnnotationUpdateFailedReason: "once"},
		},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
			other,
			{Key: v1alpha1.TaintPreferNoSchedule, Value: v1alpha1.PreferNoScheduleTrue, Effect: corev1.TaintEffectPreferNoSchedule},
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}, updated}},
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"other": "stays"}, Annotations: map[string]string{"other": "stays"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{other, awaits}},
		Status:     *n.Status.DeepCopy(),
	}
	for range 2 { // once more changes nothing
		EndInPlaceUpdate(n, true)
		if diff := cmp.Diff(want, n); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	if stage := InPlaceStage(n); stage != v1alpha1.NodeReasonUpdateSuccessful {
		t.Errorf("the stage is %q", stage)
	}
	if stage := InPlaceStage(&corev1.Node{}); stage != "" {
		t.Errorf("the stage of a Node that was never updated is %q", stage)
	}
}

// TestEndInPlaceUpdateWithoutTaint: outside Gardener nothing would remove the taint. One that is on
// the Node is another component's, and stays.
func TestEndInPlaceUpdateWithoutTaint(t *testing.T) {
	awaits := corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule}
	for name, taints := range map[string][]corev1.Taint{"none": nil, "there already": {awaits}} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true, Taints: append(taints, corev1.Taint{Key: v1alpha1.TaintPreferNoSchedule})}}
		EndInPlaceUpdate(n, false)
		if AwaitsComponents(n) != (taints != nil) || len(n.Spec.Taints) != len(taints) || n.Spec.Unschedulable {
			t.Errorf("%s: %+v", name, n.Spec)
		}
	}
}
