package policy

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

// Offers are the orphans of a namespace that are offered to parents before they are labeled as
// roots, with the parents that adopt them: unlabeled orphans, and those that still name the slot of
// a parent that they have lost. Of a parent only name and UID are stored. The zero value has none.
type Offers struct{ offers []offer }

type offer struct {
	orphan Object
	actor  int // the slot whose holder has the orphan adopted
	parent Adopter
}

// Adopter is a parent that adopts an orphan: of the parents of the kind above that are not being
// deleted, and whose selector matches it, the first by name.
type Adopter struct {
	Name string
	UID  types.UID
}

// Adoption is an orphan and its adopter.
type Adoption struct {
	Orphan  Object
	Adopter Adopter
}

// Offers returns the orphans that are offered, without parents.
func (f Forest) Offers(slots Slots) Offers {
	var o Offers
	for _, orphan := range f.objects {
		if !orphan.Orphan || orphan.Deleting {
			continue
		}
		if own := slots.Of(orphan.Namespace, orphan.Name); slots.Judge(orphan.Slot, own) != Fits {
			o.offers = append(o.offers, offer{orphan: orphan, actor: f.actor(orphan, slots, own)})
		}
	}
	return o
}

// Needs reports whether parents of a kind may adopt one of the orphans.
func (o Offers) Needs(kind Kind) bool {
	for _, offered := range o.offers {
		if offered.orphan.Kind+1 == kind {
			return true
		}
	}
	return false
}

// To offers the orphans to a parent. A selector that matches everything, or is invalid or too
// large, adopts nothing. It must not be called while others read the Offers.
func (o Offers) To(kind Kind, parent metav1.Object, selector *metav1.LabelSelector) {
	if parent.GetDeletionTimestamp() != nil || validation.SelectorSize(selector) > validation.MaxSelector {
		return
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || compiled.Empty() {
		return
	}
	for i := range o.offers {
		offered := &o.offers[i]
		isFirst := offered.parent.UID == "" || cmp.Less(parent.GetName(), offered.parent.Name)
		if offered.orphan.Kind+1 == kind && isFirst && compiled.Matches(labels.Set(offered.orphan.Labels)) {
			offered.parent = Adopter{Name: parent.GetName(), UID: parent.GetUID()}
		}
	}
}

// Adoptions returns the orphans that the holder of the acting slot has adopted.
func (o Offers) Adoptions(acting int) (adoptions []Adoption) {
	for _, offered := range o.offers {
		if offered.actor == acting && offered.parent.UID != "" {
			adoptions = append(adoptions, Adoption{Orphan: offered.orphan, Adopter: offered.parent})
		}
	}
	return adoptions
}
