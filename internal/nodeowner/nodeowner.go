package nodeowner

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Relation is the relation of a Node to a Machine.
type Relation int

const (
	// Foreign is the zero value: the Node does not belong to the Machine, and no further check can
	// change that.
	Foreign Relation = iota
	// Own means that the Node belongs to the Machine.
	Own
	// Tied means that the Node is bound to no Machine, and carries this Machine's name, from Machine
	// Controller Manager or an earlier version of the fleet. Names are unique within a namespace only:
	// it belongs to the Machine if OtherClaimants returns none.
	Tied
	// Unproven means that the Node is bound to no Machine, and has the Machine's provider ID. It
	// belongs to the Machine if the cloud has a VM of that provider ID with the Machine's UID.
	Unproven
)

// Relate returns the relation of a Node to a Machine. A Node that is bound to a Machine of the same
// namespace and name with another UID is Own: that Machine was deleted, and no other can have been
// meant.
func Relate(m *v1alpha1.Machine, node *corev1.Node) Relation {
	ref, bound := v1alpha1.MachineOf(node)
	vm := m.Spec.ProviderID
	switch {
	case bound && (ref.Namespace != m.Namespace || ref.Name != m.Name):
		return Foreign
	case node.Spec.ProviderID != "" && !driver.SameVM(vm, node.Spec.ProviderID):
		return Foreign
	case bound && ref.UID == m.UID:
		return Own
	case vm == "": // the Machine has no VM yet
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

// IsBound reports whether the Node is bound to the Machine with its UID.
func IsBound(m, node metav1.Object) bool {
	ref, _ := v1alpha1.MachineOf(node) // the zero reference equals that of no Machine
	return ref == v1alpha1.RefOf(m)
}

// OtherClaimants returns the Machines, of the given ones, that may prevent a Machine from owning a
// Node or VM that carries its name: those of the same name, which no edit of an older Machine
// changes, that are not younger, because a Machine that is created to obtain another one's Node is
// younger. Creation times are set by the API server. A claimant whose provider ID does not fit has
// no claim.
func OtherClaimants[M metav1.Object](m metav1.Object, machines []M) (claimants []M) {
	for _, other := range machines {
		created, mine := other.GetCreationTimestamp(), m.GetCreationTimestamp()
		if other.GetName() == m.GetName() && other.GetUID() != m.GetUID() && !mine.Before(&created) {
			claimants = append(claimants, other)
		}
	}
	return claimants
}
