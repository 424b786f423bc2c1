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
	namespace, rest, _ := strings.Cut(node.GetAnnotations()[AnnotationMachine], "/")
	name, uid, _ := strings.Cut(rest, "/")
	if uid == "" || strings.Contains(uid, "/") || !MayExist(types.NamespacedName{Namespace: namespace, Name: name}) {
		return MachineRef{}, false
	}
	return MachineRef{Namespace: namespace, Name: name, UID: types.UID(uid)}, true
}
