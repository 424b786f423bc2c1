// Package decide decides which Nodes of a target cluster have no machine. It is pure. Such Nodes
// get an annotation by which the cluster-autoscaler ignores them, and lose our finalizer.
//
// Whether a Node belongs to a machine is decided in internal/nodeowner, when the Node is claimed;
// the claim removes the annotation. Here a hint suffices: a Node that may have a machine is left as
// it is. A client that forges a hint, a kubelet on its own Node or a tenant on a Machine, achieves
// only that a Node does not get the annotation.
//
// Guarantees: a Node is Unmanaged only if no machine of the given ones is named by it, names it, or
// has its name. A Node that may belong to a machine in a namespace that another manager serves is
// not Unmanaged.
package decide

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Machines are all machines that the fleet can read. NewMachines returns none.
type Machines struct {
	served  func(namespace string) bool
	keys    map[types.NamespacedName]bool
	names   map[string]bool
	nodes   map[string]bool
	foreign bool
}

// NewMachines returns Machines without any. served reports whether the fleet serves a namespace.
// partial reports whether the fleet reads only one namespace, so that the target cluster may have
// Nodes of machines that it cannot read.
func NewMachines(served func(namespace string) bool, partial bool) *Machines {
	return &Machines{
		served: served, foreign: partial, keys: map[types.NamespacedName]bool{}, names: map[string]bool{}, nodes: map[string]bool{},
	}
}

// Add adds a machine. Its metadata suffices.
func (ms *Machines) Add(m metav1.Object) {
	ms.keys[types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}] = true
	ms.names[m.GetName()] = true
	ms.nodes[m.GetLabels()[v1alpha1.LabelNode]] = true // no Node has the name ""
	ms.foreign = ms.foreign || !ms.served(m.GetNamespace())
}

// Unmanaged reports whether a Node has no machine. The machines have to be read before the Node.
// The answer has consequences only when it was the same for some time: the machine of a Node that
// has just joined may not name it yet.
func (ms *Machines) Unmanaged(node metav1.Object) bool {
	if node.GetDeletionTimestamp() != nil {
		return false // the machine of the Node is deleted first, and then the finalizer is removed
	}
	if ref, bound := v1alpha1.MachineOf(node); bound {
		return ms.served(ref.Namespace) && !ms.keys[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	}
	name := node.GetLabels()[v1alpha1.LabelMachineName]
	switch {
	case ms.nodes[node.GetName()], ms.names[node.GetName()], ms.names[name]:
		return false
	case ms.foreign:
		return name == "" && !HasFinalizer(node) // another manager may have given them to the Node
	}
	return true
}

// IsAnnotated reports whether a Node has the annotation of a Node without a machine.
func IsAnnotated(node metav1.Object) bool {
	return node.GetAnnotations()[v1alpha1.AnnotationNotManaged] == "1"
}

// HasFinalizer reports whether a Node has our finalizer.
func HasFinalizer(node metav1.Object) bool {
	return slices.Contains(node.GetFinalizers(), v1alpha1.NodeFinalizerName)
}
