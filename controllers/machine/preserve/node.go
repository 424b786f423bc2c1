package preserve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Parts of the condition's message. It ends with the time.
const (
	keptUntil   = "The machine is preserved until"
	toBeDrained = "The Node of the failed machine is not drained yet."
)

// showsPreserved reports whether the Node shows that its machine is preserved. The annotations for
// the autoscaler are not sufficient: rollouts set them, too.
func showsPreserved(n *corev1.Node) bool {
	if n == nil {
		return false
	}
	c := condition(n)
	return isTainted(n) || c != nil && c.Status == corev1.ConditionTrue
}

// showPreserved returns the Node as the next write leaves it, and whether it has to be drained now.
func showPreserved(w World, a asked, until time.Time) (node *corev1.Node, drain bool) {
	n := w.Node.DeepCopy()
	nodesync.KeepFromAutoscaler(n)
	reason := v1alpha1.NodeReasonPreservedByUser
	if a.value == v1alpha1.PreserveAuto {
		reason = v1alpha1.NodeReasonPreservedByController
	}
	set := func(status corev1.ConditionStatus, beginning ...string) {
		sentences := slices.Concat(beginning, []string{fmt.Sprintf("%s %s", keptUntil, until.UTC().Format(time.RFC3339))})
		sentences = slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
		setCondition(w, n, status, reason, strings.Join(sentences, " "))
	}
	was := condition(n)
	isTrue := was != nil && was.Status == corev1.ConditionTrue
	switch {
	case w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineFailed:
		untaint(n)
		set(corev1.ConditionTrue)
	case !isTainted(n) && isTrue: // from before it failed; with the taint it would mean that the Node is drained
		set(corev1.ConditionFalse, toBeDrained)
	case !isTainted(n):
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: v1alpha1.TaintPreserved, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: w.Now},
		})
	case isTrue: // and drained, see the package comment
	case w.Drain == DrainDone:
		set(corev1.ConditionTrue, v1alpha1.PreservedNodeDrained)
	case w.Drain == DrainForced:
		set(corev1.ConditionTrue, v1alpha1.PreservedNodeForced, w.DrainText)
	case w.Drain == DrainFailed:
		set(corev1.ConditionFalse, v1alpha1.PreservedNodeNotDrained, w.DrainText)
		drain = true
	case w.Drain == DrainRunning && was != nil:
		set(corev1.ConditionFalse, toBeDrained)
		drain = true
	default:
		drain = true
	}
	return n, drain
}

// removePreserved removes that from the Node, and with forget also the request.
func removePreserved(w World, forget bool) *corev1.Node {
	n := w.Node.DeepCopy()
	if !w.Rolling {
		nodesync.LeaveToAutoscaler(n)
	}
	if forget {
		delete(n.Annotations, v1alpha1.AnnotationPreserve)
	}
	untaint(n)
	if condition(n) != nil {
		setCondition(w, n, corev1.ConditionFalse, v1alpha1.NodeReasonPreservationStopped, "The machine is not preserved any more.")
	}
	return n
}

func isPreservedTaint(t corev1.Taint) bool {
	return t.Key == v1alpha1.TaintPreserved && t.Effect == corev1.TaintEffectNoSchedule
}

func isTainted(n *corev1.Node) bool { return slices.ContainsFunc(n.Spec.Taints, isPreservedTaint) }

func untaint(n *corev1.Node) { n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isPreservedTaint) }

// condition returns the Node's condition; nil if there is none.
func condition(n *corev1.Node) *corev1.NodeCondition {
	return machinefacts.NodeCondition(n, v1alpha1.NodePreserved)
}

// setCondition sets the condition; the time of transition is kept while the status is unchanged,
// and an equal condition is not changed.
func setCondition(w World, n *corev1.Node, status corev1.ConditionStatus, reason, message string) {
	now := metav1.NewTime(w.Now)
	next := corev1.NodeCondition{
		Type: v1alpha1.NodePreserved, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
	was := condition(n)
	switch {
	case was == nil:
		n.Status.Conditions = append(n.Status.Conditions, next)
	case was.Status == status && was.Reason == reason && was.Message == message:
	default:
		if was.Status == status {
			next.LastTransitionTime = was.LastTransitionTime
		}
		*was = next
	}
}

// samePreserved reports whether two versions of a Node show the same.
func samePreserved(a, b *corev1.Node) bool {
	return apiequality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		apiequality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		apiequality.Semantic.DeepEqual(a.Status.Conditions, b.Status.Conditions)
}
