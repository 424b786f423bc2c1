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
	// Tied means that the Node is bound to no Machine, and carries this one's name, from Machine Controller Manager or an
	// earlier version of the fleet. Names are unique within a namespace only: it is the Machine's if Rivals finds none.
	Tied
	// Unproven means that the Node is bound to no Machine, and has the Machine's provider ID. It is the Machine's if the cloud
	// has a VM of that provider ID with the Machine's UID.
	Unproven
)

// Relate returns how a Node stands to a Machine. A Node that is bound to a Machine of the same namespace and name with another
// UID is its own: that Machine is gone, and no other can have been meant.
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
	case bound:
		return Own
	case node.Labels[v1alpha1.LabelMachineName] == m.Name:
		return Tied
	case node.Spec.ProviderID == "":
		return Foreign
	}
	return Unproven
}

// IsBound reports whether the Node is bound to this very Machine.
func IsBound(m, node metav1.Object) bool {
	ref, _ := v1alpha1.MachineOf(node) // the zero reference is no Machine's
	return ref == v1alpha1.RefOf(m)
}

// Rivals returns those of some Machines that may keep a Machine from what is tied to it by its name: those of the same name,
// which no edit of an older Machine gives it, that are not younger, as a Machine is that is made to get at what another one
// has. Times of creation are the API server's. A rival whose provider ID does not fit has no claim.
func Rivals[M metav1.Object](m metav1.Object, machines []M) (rivals []M) {
	for _, other := range machines {
		created, mine := other.GetCreationTimestamp(), m.GetCreationTimestamp()
		if other.GetName() == m.GetName() && other.GetUID() != m.GetUID() && !mine.Before(&created) {
			rivals = append(rivals, other)
		}
	}
	return rivals
}
