package policy

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Kind of an object that carries the label. The kinds are ordered as a tree is labeled.
type Kind int

// The kinds, bottom-up.
const (
	Node Kind = iota
	Machine
	Set
	Deployment
)

// Kinds are all kinds, bottom-up.
func Kinds() []Kind { return []Kind{Node, Machine, Set, Deployment} }

// String returns the kind as in the API.
func (k Kind) String() string {
	switch k {
	case Node:
		return "Node"
	case Machine:
		return "Machine"
	case Set:
		return "MachineSet"
	case Deployment:
		return "MachineDeployment"
	}
	return "Kind" + strconv.Itoa(int(k))
}

// Resource returns the resource of the kind in paths of the API.
func (k Kind) Resource() string {
	switch k {
	case Node:
		return "nodes"
	case Machine:
		return "machines"
	case Set:
		return "machinesets"
	case Deployment:
		return "machinedeployments"
	}
	return ""
}

// Object is the part of an object that decides its slot.
type Object struct {
	Kind            Kind
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Slot is the value of the label; "" if there is none.
	Slot string
	// Parent is the UID of the parent, and ParentName its name, when the controller of the object is
	// of the kind above; "" when it has none, and is a root.
	Parent     types.UID
	ParentName string
	// Orphan is true for a MachineSet or Machine without any controller, so that a parent may adopt it
	// by its Labels, which are kept for orphans only.
	Orphan bool
	Labels map[string]string
	// NodeName, of a Machine, is the name of its Node; "" when it is not known yet.
	NodeName string
	// Machine, of a Node, is the Machine that it is bound to; the zero value when it is bound to none.
	Machine v1alpha1.MachineRef
	// Deleting is true for an object with a deletionTimestamp.
	Deleting bool
}

// Of returns the Object of the metadata.
func Of(kind Kind, meta metav1.Object) Object {
	o := Object{
		Kind: kind, Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUID(),
		ResourceVersion: meta.GetResourceVersion(), Slot: meta.GetLabels()[v1alpha1.LabelSlot],
		Deleting: meta.GetDeletionTimestamp() != nil,
	}
	if kind == Machine {
		o.NodeName = meta.GetLabels()[v1alpha1.LabelNode]
	}
	switch owner := metav1.GetControllerOfNoCopy(meta); {
	case kind == Node:
		o.Machine, _ = v1alpha1.MachineOf(meta)
	case kind == Deployment:
	case owner == nil:
		o.Orphan, o.Labels = true, meta.GetLabels()
	case owner.Kind == (kind + 1).String():
		o.Parent, o.ParentName = owner.UID, owner.Name
	}
	return o
}

// Ref returns a reference to an object of one of the fleet's kinds, for Events.
func (o Object) Ref() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	}
}

// Key returns the object's namespace and name.
func (o Object) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// Read returns the slot that a label names; ok is false for a label that names none of the given
// number of slots.
func Read(value string, slots int) (slot int, ok bool) {
	slot, _ = strconv.Atoi(value) // what is no number differs from its Value
	if slot < 0 || slot >= slots || Value(slot) != value {
		return 0, false
	}
	return slot, true
}

// Value returns the label of a slot: decimal, without padding.
func Value(slot int) string { return strconv.Itoa(slot) }
