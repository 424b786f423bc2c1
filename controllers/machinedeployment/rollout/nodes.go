package rollout

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// nodesOutOfStep returns the Nodes whose labels and annotations of an update in place differ from
// the desired ones, in their desired state.
func (s inPlaceUpdates) nodesOutOfStep() (changed []*corev1.Node) {
	if len(s.w.Nodes) == 0 {
		return nil
	}
	for _, t := range s.all() {
		for _, m := range machinefacts.OldestFirst(s.w.Machines[t.set.UID]) {
			node := nodeOf(s.w.Nodes, m)
			if node == nil || m.DeletionTimestamp != nil || t.set.DeletionTimestamp != nil {
				continue
			}
			if desired := s.desiredNode(t, m, node); !machinefacts.Same(node, desired) {
				changed = append(changed, desired)
			}
		}
	}
	return changed
}

// desiredNode returns the Node of a machine in its desired state. A Node of an old machine is a
// candidate, and names its next set; once its update has begun only the agent's part changes that
// name (controllers/machineconfig/join/stamp). A Node whose machine has moved to that set is freed,
// as is one that was updated for a set that does not exist any more.
func (s inPlaceUpdates) desiredNode(t *tally, m *v1alpha1.Machine, node *corev1.Node) *corev1.Node {
	n := node.DeepCopy()
	switch to := s.destination(t, node); {
	case isUpdated(m, node) && (to == t || to == nil):
		machinefacts.EndInPlaceUpdate(n, !s.w.NoComponentsTaint)
	case hasBegun(node):
		if isOf := n.Annotations[v1alpha1.AnnotationUpdateTo]; isOf == "" && s.newSet != nil && t != s.newSet {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationUpdateTo, s.newSet.set.Name)
		}
	case s.inPlace && t != s.newSet && s.d.Spec.Paused: // it stays as it was when the rollout was paused
	case s.inPlace && t != s.newSet && s.newSet != nil:
		n.Labels[v1alpha1.LabelCandidateForUpdate] = "true"
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationUpdateTo, s.newSet.set.Name)
	case n.Annotations[v1alpha1.AnnotationUpdateTo] != "": // else another client has labelled it as a candidate
		delete(n.Labels, v1alpha1.LabelCandidateForUpdate)
		delete(n.Annotations, v1alpha1.AnnotationUpdateTo)
	}
	return n
}
