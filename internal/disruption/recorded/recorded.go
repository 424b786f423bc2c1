package recorded

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// Below returns the disruptions that are recorded on the root of a set. An annotation that cannot
// be read counts as none: the controller that writes disruptions reports it.
func Below(view *objectcache.View, set *v1alpha1.MachineSet) []disruption.Disruption {
	root, ok := ownerref.RootOfSet(view, set)
	if !ok {
		return nil
	}
	disruptions, err := disruption.ReadDisruptions(root)
	if err != nil {
		return nil
	}
	return disruptions
}

// Has reports whether the root of a machine has a disruption for the machine as it is now, so that
// it may be replaced.
func Has(view *objectcache.View, m *v1alpha1.Machine) bool {
	set, ok := ownerref.SetOf(view, m)
	return ok && disruption.Allows(Below(view, set), m)
}

// OnChange calls f with the key of every machine that has, or had, a disruption, when the
// disruptions on its root change. It must be called before the view is fed; f must return soon.
func OnChange(view *objectcache.View, f func(machine types.NamespacedName)) {
	onChange(view.Deployments, f)
	onChange(view.Sets, f)
}

func onChange[T ownerref.Object[T]](roots *objectcache.Store[T], f func(machine types.NamespacedName)) {
	var none T
	text := func(root T) string {
		if root == none {
			return ""
		}
		return root.GetAnnotations()[v1alpha1.AnnotationDisruptions]
	}
	roots.OnChange(func(before, after T) {
		if text(before) == text(after) {
			return
		}
		for _, root := range []T{before, after} {
			if root == none {
				continue
			}
			disruptions, err := disruption.ReadDisruptions(root)
			if err != nil {
				continue // reported by the controller that writes them
			}
			for _, p := range disruptions {
				f(types.NamespacedName{Namespace: root.GetNamespace(), Name: p.Name})
			}
		}
	})
}
