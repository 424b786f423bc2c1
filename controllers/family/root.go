package family

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/brake"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objects"
)

// RootOf returns the root of a machine, by its owners and no label: the MachineDeployment of its set, or the set, if that has
// no controller. ok is false for a machine without a controller, and where the view does not show all of them.
func RootOf(view *objects.View, m *v1alpha1.Machine) (root metav1.Object, ok bool) {
	set, ok := ownerIn(view.Sets, m)
	if !ok {
		return nil, false
	}
	return RootOfSet(view, set)
}

// CountsMinReady says whether minReadySeconds counts below a root: what stands on the root goes before the fleet's setting.
func CountsMinReady(root metav1.Object, otherwise bool) bool {
	return setting(root, v1alpha1.AnnotationCountMinReady, otherwise)
}

// OmitsComponentsTaint reports whether Nodes below a root that were updated in place go without the taint
// critical-components-not-ready: the root's annotation goes before the fleet's setting.
func OmitsComponentsTaint(root metav1.Object, otherwise bool) bool {
	return !setting(root, v1alpha1.AnnotationComponentsTaint, !otherwise)
}

// setting returns the value of an annotation of the root; otherwise where it has none that is a bool.
func setting(root metav1.Object, annotation string, otherwise bool) bool {
	if is, err := strconv.ParseBool(root.GetAnnotations()[annotation]); err == nil {
		return is
	}
	return otherwise
}

// RootOfSet returns the root of a set.
func RootOfSet(view *objects.View, set *v1alpha1.MachineSet) (root metav1.Object, ok bool) {
	if metav1.GetControllerOfNoCopy(set) == nil {
		return set, true
	}
	d, ok := ownerIn(view.Deployments, set)
	return d, ok
}

// ownerIn finds the controller of an object.
func ownerIn[T metav1.Object](owners *objects.Objects[T], child metav1.Object) (owner T, ok bool) {
	controller := metav1.GetControllerOfNoCopy(child)
	if controller == nil {
		return owner, false
	}
	owner, ok = owners.Get(types.NamespacedName{Namespace: child.GetNamespace(), Name: controller.Name})
	return owner, ok && owner.GetUID() == controller.UID
}

// Permits are those that stand on the root of a set. What cannot be read is none: whoever gives permits tells of it.
func Permits(view *objects.View, set *v1alpha1.MachineSet) []brake.Permit {
	root, ok := RootOfSet(view, set)
	if !ok {
		return nil
	}
	permits, err := brake.ReadPermits(root)
	if err != nil {
		return nil
	}
	return permits
}

// SetOf returns the set that is the controller of a machine. ok is false for a machine without one, and where the view does not
// show it.
func SetOf(view *objects.View, m *v1alpha1.Machine) (set *v1alpha1.MachineSet, ok bool) {
	return ownerIn(view.Sets, m)
}

// HasPermit says that the machine, as it is now, may be replaced by what stands on its root.
func HasPermit(view *objects.View, m *v1alpha1.Machine) bool {
	set, ok := ownerIn(view.Sets, m)
	return ok && brake.Permits(Permits(view, set), m)
}

// OnPermit has f told of every machine that has, or had, a permit to be replaced, by its key, when the permits on its root
// change. It is called before anything is fed; f must return soon.
func OnPermit(view *objects.View, f func(machine types.NamespacedName)) {
	onPermit(view.Deployments, f)
	onPermit(view.Sets, f)
}

func onPermit[T Object[T]](roots *objects.Objects[T], f func(machine types.NamespacedName)) {
	var none T
	text := func(root T) string {
		if root == none {
			return ""
		}
		return root.GetAnnotations()[v1alpha1.AnnotationReplacing]
	}
	roots.OnChange(func(before, after T) {
		if text(before) == text(after) {
			return
		}
		for _, root := range []T{before, after} {
			if root == none {
				continue
			}
			permits, err := brake.ReadPermits(root)
			if err != nil {
				continue // whoever gives permits tells of it
			}
			for _, p := range permits {
				f(types.NamespacedName{Namespace: root.GetNamespace(), Name: p.Name})
			}
		}
	})
}
