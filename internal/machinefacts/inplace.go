package machinefacts

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// InPlaceCondition returns the Node's condition about its update in place; nil without one, which
// means that no update was requested yet. It may be changed.
func InPlaceCondition(n *corev1.Node) *corev1.NodeCondition {
	return NodeCondition(n, v1alpha1.NodeInPlaceUpdate)
}

// InPlaceStage returns the stage of the Node's update in place, a reason of
// v1alpha1.NodeInPlaceUpdate; "" when none was requested yet.
func InPlaceStage(n *corev1.Node) string {
	if c := InPlaceCondition(n); c != nil {
		return c.Reason
	}
	return ""
}

// IsInPlaceCandidate reports whether the Node has the label of a candidate for an update in place.
func IsInPlaceCandidate(n *corev1.Node) bool {
	return n.Labels[v1alpha1.LabelCandidateForUpdate] == "true"
}

// IsInPlaceSelected reports whether the Node has the label that selects it for its update in place.
func IsInPlaceSelected(n *corev1.Node) bool {
	return n.Labels[v1alpha1.LabelSelectedForUpdate] == "true"
}

// EndInPlaceUpdate removes everything of an update in place from a Node but its condition. With
// taint it adds TaintCriticalComponentsNotReady, which keeps pods away until another component,
// Gardener's resource manager, has found the Node fit for them.
func EndInPlaceUpdate(n *corev1.Node, taint bool) {
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

// AwaitsComponents reports whether the Node has the taint of critical components that are not
// ready.
func AwaitsComponents(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCriticalComponentsNotReady })
}

// Uncordon makes a Node schedulable. The taint of Kubernetes is removed with the cordon, as it was
// added with it.
func Uncordon(n *corev1.Node) {
	n.Spec.Unschedulable = false
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isCordon)
}

// Cordon marks a Node as unschedulable, and adds the taint of that: otherwise the node lifecycle
// controller of the target cluster would add it by a read and its own write.
func Cordon(n *corev1.Node) {
	n.Spec.Unschedulable = true
	if !slices.ContainsFunc(n.Spec.Taints, isCordon) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
}

func isCordon(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
}
