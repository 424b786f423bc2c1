package nodeowner

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Relation is how a Node stands to a Machine.
type Relation int

const (
	// Foreign is the zero value: the Node is not the Machine's, and nothing makes it so.
	Foreign Relation = iota
	// Own means that the Node is the Machine's.
	Own
	// Tied means that the Node is bound to no Machine that exists, and that a Machine of this name has had it: Machine
	// Controller Manager, or an earlier version of the fleet, has put the machine's name on it, or it is bound to a Machine of
	// the same namespace and name with another UID, which therefore is gone. It is the Machine's if Rivals finds none.
	Tied
	// Unproven means that the Node is bound to no Machine, and has the Machine's provider ID. It is the Machine's if the cloud
	// has a VM of that provider ID with the Machine's UID.
	Unproven
)

// Relate returns how a Node stands to a Machine.
func Relate(m *v1alpha1.Machine, node *corev1.Node) Relation {
	ref, bound := v1alpha1.MachineOf(node)
	vm := m.Spec.ProviderID
	switch {
	case bound && (ref.Namespace != m.Namespace || ref.Name != m.Name):
		return Foreign
	case node.Spec.ProviderID != "" && node.Spec.ProviderID != vm:
		return Foreign
	case bound && ref.UID == m.UID:
		return Own
	case vm == "": // nothing of the cloud's is the Machine's yet
		return Foreign
	case bound, node.Labels[v1alpha1.LabelMachineName] == m.Name:
		return Tied
	case node.Spec.ProviderID == "":
		return Foreign
	}
	return Unproven
}

// IsBound reports whether the Node is bound to this very Machine.
func IsBound(m, node metav1.Object) bool {
	ref, bound := v1alpha1.MachineOf(node)
	return bound && ref == v1alpha1.RefOf(m)
}

// Rivals returns those of some Machines that keep a Machine from what it claims because their claim is not younger: a Machine
// that is made to get at what another one has is younger than that one. Times of creation are the API server's. The names
// have namespaces, and are for logs: they may be of namespaces that the Machine's author cannot read.
func Rivals[M metav1.Object](m metav1.Object, claimants []M) (rivals []string) {
	for _, other := range claimants {
		created, mine := other.GetCreationTimestamp(), m.GetCreationTimestamp()
		if other.GetUID() != m.GetUID() && !mine.Before(&created) {
			rivals = append(rivals, other.GetNamespace()+"/"+other.GetName())
		}
	}
	return rivals
}
