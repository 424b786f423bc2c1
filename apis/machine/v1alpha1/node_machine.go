package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MachineRef names one Machine, and no later one of the same name.
//
// +kubebuilder:object:generate=false
type MachineRef struct {
	Namespace, Name string
	UID             types.UID
}

// RefOf returns the reference to a Machine.
func RefOf(m metav1.Object) MachineRef {
	return MachineRef{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID()}
}

// String returns the reference as AnnotationMachine has it.
func (r MachineRef) String() string { return r.Namespace + "/" + r.Name + "/" + string(r.UID) }

// MachineOf returns the Machine that a Node is bound to; bound is false when it is bound to none,
// or when its annotation cannot be read.
func MachineOf(node metav1.Object) (ref MachineRef, bound bool) {
	parts := strings.Split(node.GetAnnotations()[AnnotationMachine], "/")
	if len(parts) != 3 || parts[2] == "" || !MayExist(types.NamespacedName{Namespace: parts[0], Name: parts[1]}) {
		return MachineRef{}, false
	}
	return MachineRef{Namespace: parts[0], Name: parts[1], UID: types.UID(parts[2])}, true
}
