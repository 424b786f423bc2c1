package nodesync

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// virtualCapacity returns the capacity that the class adds to that of its Nodes.
func virtualCapacity(class *v1alpha1.MachineClass) corev1.ResourceList {
	if class.NodeTemplate == nil {
		return nil
	}
	return class.NodeTemplate.VirtualCapacity
}

// applyCapacity merges the virtual capacity. It is recorded before it is added, and as long as it
// exists: annotation and status are two requests, and between them the process may die and the
// class may change.
func applyCapacity(n *corev1.Node, want corev1.ResourceList) {
	last, known := lastCapacity(n)
	owned := maps.Clone(want)
	if owned == nil {
		owned = corev1.ResourceList{}
	}
	if n.Status.Capacity == nil {
		n.Status.Capacity = corev1.ResourceList{}
	}
	for name, quantity := range last {
		_, still := want[name]
		if _, there := n.Status.Capacity[name]; there && !still {
			owned[name] = quantity
			delete(n.Status.Capacity, name)
		}
	}
	for name, quantity := range want {
		if have, there := n.Status.Capacity[name]; !there || have.Cmp(quantity) != 0 {
			n.Status.Capacity[name] = quantity
		}
	}
	if sameCapacity(last, owned) && (known || len(owned) == 0) {
		return
	}
	note(n, v1alpha1.AnnotationLastAppliedVirtualCapacity, owned)
}

// lastCapacity returns the last applied capacity, as lastTemplate does.
func lastCapacity(n *corev1.Node) (last corev1.ResourceList, known bool) {
	text, noted := n.Annotations[v1alpha1.AnnotationLastAppliedVirtualCapacity]
	if err := json.Unmarshal([]byte(text), &last); !noted || err != nil {
		return nil, false
	}
	return last, true
}

func sameCapacity(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		if other, there := b[name]; !there || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
