package policy

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Offered returns the orphans that the holder of the acting slot offers to parents before it labels them as roots: unlabeled
// ones, and those that still name the slot of a parent that they have lost.
func (f Forest) Offered(slots Slots, acting int) []Object {
	var offered []Object
	for _, o := range f.objects {
		if !o.Orphan || o.Deleting {
			continue
		}
		own := slots.Of(o.Namespace, o.Name)
		if slots.Judge(o.Slot, own) != Fits && f.actor(o, slots, own) == acting {
			offered = append(offered, o)
		}
	}
	return offered
}

// Adopter returns the parent for an orphan: of the parents of the kind above that are not being deleted, and whose selector
// matches it, the first by name. ok is false if there is none. A selector that matches everything, or is invalid, adopts nothing.
func Adopter[T metav1.Object](orphan Object, parents []T, selectorOf func(T) *metav1.LabelSelector) (parent T, ok bool) {
	var matching []T
	for _, p := range parents {
		selector, err := metav1.LabelSelectorAsSelector(selectorOf(p))
		if err == nil && !selector.Empty() && p.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(orphan.Labels)) {
			matching = append(matching, p)
		}
	}
	if len(matching) == 0 {
		return parent, false
	}
	return slices.MinFunc(matching, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) }), true
}
