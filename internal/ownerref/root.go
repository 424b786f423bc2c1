package ownerref

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// RootOf returns the root of a machine, by its owners and not by labels: the MachineDeployment of
// its set, or the set, if that has no controller. ok is false for a machine without a controller,
// and where the view does not show all of them.
func RootOf(view *objectcache.View, m *v1alpha1.Machine) (root metav1.Object, ok bool) {
	set, ok := ownerIn(view.Sets, m)
	if !ok {
		return nil, false
	}
	return RootOfSet(view, set)
}

// RootUIDOf returns the UID of the root of a machine, by its owners; "" where the view does not
// show its set. A machine without a controller is its own root.
func RootUIDOf(view *objectcache.View, m *v1alpha1.Machine) types.UID {
	if metav1.GetControllerOfNoCopy(m) == nil {
		return m.UID
	}
	if set, ok := ownerIn(view.Sets, m); ok {
		return RootUIDOfSet(set)
	}
	return ""
}

// RootUIDOfSet returns the UID of the root of a set: that of its controller or, if it has none, its
// own.
func RootUIDOfSet(set *v1alpha1.MachineSet) types.UID {
	if controller := metav1.GetControllerOfNoCopy(set); controller != nil {
		return controller.UID
	}
	return set.UID
}

// RootOfSet returns the root of a set.
func RootOfSet(view *objectcache.View, set *v1alpha1.MachineSet) (root metav1.Object, ok bool) {
	if metav1.GetControllerOfNoCopy(set) == nil {
		return set, true
	}
	d, ok := ownerIn(view.Deployments, set)
	return d, ok
}

// ownerIn finds the controller of an object.
func ownerIn[T metav1.Object](owners *objectcache.Store[T], child metav1.Object) (owner T, ok bool) {
	controller := metav1.GetControllerOfNoCopy(child)
	if controller == nil {
		return owner, false
	}
	owner, ok = owners.Get(types.NamespacedName{Namespace: child.GetNamespace(), Name: controller.Name})
	return owner, ok && owner.GetUID() == controller.UID
}

// SetOf returns the set that is the controller of a machine. ok is false for a machine without one,
// and where the view does not show it.
func SetOf(view *objectcache.View, m *v1alpha1.Machine) (set *v1alpha1.MachineSet, ok bool) {
	return ownerIn(view.Sets, m)
}
