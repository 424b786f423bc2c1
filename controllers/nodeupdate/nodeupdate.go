package nodeupdate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Condition is the Node's condition about its update; nil when it was never asked to be updated. It may be changed.
func Condition(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == v1alpha1.NodeInPlaceUpdate {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// Stage is how far the Node is, a reason of v1alpha1.NodeInPlaceUpdate; "" when it was never asked to be updated.
func Stage(n *corev1.Node) string {
	if c := Condition(n); c != nil {
		return c.Reason
	}
	return ""
}

// Free removes everything of an update from a Node. With taint it adds TaintCriticalComponentsNotReady, which keeps pods away until
// another component, Gardener's resource manager, has found the Node fit for them.
func Free(n *corev1.Node, taint bool) {
	delete(n.Labels, v1alpha1.LabelCandidateForUpdate)
	delete(n.Labels, v1alpha1.LabelSelectedForUpdate)
	delete(n.Labels, v1alpha1.LabelUpdateResult)
	delete(n.Annotations, v1alpha1.AnnotationUpdateFailedReason)
	delete(n.Annotations, v1alpha1.AnnotationUpdateTo)
	Uncordon(n)
	awaits := corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreferNoSchedule })
	if taint && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&awaits) }) {
		n.Spec.Taints = append(n.Spec.Taints, awaits)
	}
}

// AwaitsComponents says that the Node is not found fit for pods yet.
func AwaitsComponents(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCriticalComponentsNotReady })
}

// Uncordon lets pods on a Node. The taint of Kubernetes goes with the cordon, as it has come with it.
func Uncordon(n *corev1.Node) {
	n.Spec.Unschedulable = false
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
	})
}
