package nodeowner

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Relation is the relation of a Node to a Machine.
type Relation int

const (
	// Foreign is the zero value: the Node does not belong to the Machine, and no further check can change that.
	Foreign Relation = iota
	// Own means that the Node belongs to the Machine.
	Own
	// Tied means that the Node is bound to no Machine, and carries this Machine's name, from Machine Controller Manager or an
	// earlier version of the fleet. Names are unique within a namespace only: it belongs to the Machine if Rivals returns none.
	Tied
	// Unproven means that the Node is bound to no Machine, and has the Machine's provider ID. It belongs to the Machine if the cloud
	// has a VM of that provider ID with the Machine's UID.
	Unproven
)

// Relate returns the relation of a Node to a Machine. A Node that is bound to a Machine of the same namespace and name with another
// UID is Own: that Machine was deleted, and no other can have been meant.
func Relate(m *v1alpha1.Machine, node *corev1.Node) Relation {
	ref, bound := v1alpha1.MachineOf(node)
	vm := m.Spec.ProviderID
	switch {
	case bound && (ref.Namespace != m.Namespace || ref.Name != m.Name):
		return Foreign
	case node.Spec.ProviderID != "" && !SameVM(vm, node.Spec.ProviderID):
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

// The schemes of provider IDs that have several forms.
const (
	aws   = "aws:///"
	azure = "azure:///"
)

// SameVM reports whether the provider ID of a Machine and that of a Node name one VM: they are Identical, or the Machine has the location and
// the name of a VM of Azure, as Machine Controller Manager has written it, and the Node the cloud's ID of a VM of that name. The first form
// has no resource group: it names a VM only together with the class of the Machine, so this is no evidence that the VM is the Machine's.
func SameVM(machine, node string) bool {
	if Identical(machine, node) {
		return true
	}
	ofMachine, isAzure := strings.CutPrefix(machine, azure)
	location, name, _ := strings.Cut(ofMachine, "/") // Machine Controller Manager has written azure:///<location>/<name>
	vm := vmOfAzure(node)
	return isAzure && location != "" && vm != "" && strings.EqualFold(name, vm)
}

// Identical reports whether the provider ID of a Machine, or of a VM as the cloud reports it, and that of a Node name one VM whatever the class
// is: they are equal, or they are those of AWS, where a Machine has the region, as in Machine Controller Manager, and a Node the zone, as
// the cloud controller manager sets it: a zone's name begins with that of its region. An ID of an instance of AWS is never used again, in
// any region.
func Identical(machine, node string) bool {
	ofMachine, isAWS := strings.CutPrefix(machine, aws)
	ofNode, isNodeOfAWS := strings.CutPrefix(node, aws)
	if machine == node || !isAWS || !isNodeOfAWS {
		return machine == node
	}
	region, vm, _ := strings.Cut(ofMachine, "/")
	zone, vmOfNode, _ := strings.Cut(ofNode, "/")
	return vm != "" && vm == vmOfNode && region != "" && strings.HasPrefix(zone, region)
}

// MayNameOneVM reports whether the provider IDs of two Machines may name one VM: they are equal, or they differ in what a driver takes from
// the class of the Machine instead, the region of AWS, and location, subscription and resource group of Azure.
func MayNameOneVM(one, other string) bool {
	for _, scheme := range []string{aws, azure} {
		if strings.HasPrefix(one, scheme) && strings.HasPrefix(other, scheme) {
			return strings.EqualFold(lastElement(one), lastElement(other))
		}
	}
	return one == other
}

func lastElement(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// vmOfAzure returns the name of a VM in its provider ID: azure:///subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.Compute/virtualMachines/<name>.
// It is "" in other IDs.
func vmOfAzure(id string) string {
	rest, ok := strings.CutPrefix(id, azure)
	parts := strings.Split(rest, "/")
	const count = 8
	if !ok || len(parts) != count || !strings.EqualFold(parts[0], "subscriptions") || !strings.EqualFold(parts[2], "resourceGroups") ||
		!strings.EqualFold(strings.Join(parts[4:7], "/"), "providers/Microsoft.Compute/virtualMachines") {
		return ""
	}
	return parts[7]
}

// IsBound reports whether the Node is bound to the Machine with its UID.
func IsBound(m, node metav1.Object) bool {
	ref, _ := v1alpha1.MachineOf(node) // the zero reference equals that of no Machine
	return ref == v1alpha1.RefOf(m)
}

// Rivals returns the Machines, of the given ones, that may prevent a Machine from owning a Node or VM that carries its name: those
// of the same name, which no edit of an older Machine changes, that are not younger, because a Machine that is created to obtain
// another one's Node is younger. Creation times are set by the API server. A rival whose provider ID does not fit has no claim.
func Rivals[M metav1.Object](m metav1.Object, machines []M) (rivals []M) {
	for _, other := range machines {
		created, mine := other.GetCreationTimestamp(), m.GetCreationTimestamp()
		if other.GetName() == m.GetName() && other.GetUID() != m.GetUID() && !mine.Before(&created) {
			rivals = append(rivals, other)
		}
	}
	return rivals
}
