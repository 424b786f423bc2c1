package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// hasNode reports whether there is a Node, and that it is not another VM's.
func (l *life) hasNode() bool { return l.node != nil && l.node.Spec.ProviderID == ownVM.ProviderID }

// isKnown reports whether the Node is known to be the machine's. A Node that has joined while its
// VM was being deleted, and that was not claimed, is not known to be the machine's by a process
// that has not seen the VM: only the cloud could report whose VM it was, and the cloud has no
// record of the VM any more. Nor is the Node of a VM that the machine has never named, which is
// deleted by the machine's UID when the cloud does not show it in time.
func (l *life) isKnown() bool {
	return l.proven && l.named || l.node.Annotations[v1alpha1.AnnotationMachine] != ""
}

// displace has another VM join under the name of the machine's Node.
func (l *life) displace() {
	l.node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{v1alpha1.LabelSlot: "7"}},
		Spec:       corev1.NodeSpec{ProviderID: "cloud:///i-2"},
	}
	l.pods = 0
	l.reportNode()
}

// reportNode has the machine looked at whose Node has changed, if the controller knows that it is
// its Node.
func (l *life) reportNode() {
	if NodeName(l.machine) != "" {
		l.enqueue()
	}
}

// setConditions changes the conditions of the Node. Of a Node that is in no slot the cache shows
// the name alone.
func (l *life) setConditions(conditions ...corev1.NodeCondition) {
	for _, c := range l.node.Status.Conditions {
		if c.Type == v1alpha1.NodeInPlaceUpdate { // ours
			conditions = append(conditions, c)
		}
	}
	if slices.Equal(l.node.Status.Conditions, conditions) {
		return
	}
	l.node = l.node.DeepCopy()
	l.node.Status.Conditions = conditions
	if l.node.Labels[v1alpha1.LabelSlot] != "" {
		l.reportNode()
	}
}
