package policy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

func everything(values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpNotIn, Values: values}},
	}
}

func TestOffers(t *testing.T) {
	objects := []Object{
		{Kind: Machine, Name: "1-orphan", Orphan: true},
		{Kind: Machine, Name: "1-labeled", Orphan: true, Slot: "1"},
		{Kind: Machine, Name: "1-deleting", Orphan: true, Deleting: true},
		{Kind: Machine, Name: "1-child", Parent: "p"},
		{Kind: Set, Name: "2-orphan", Orphan: true},
		{Kind: Machine, Name: "2-of-a-lost-parent", Orphan: true, Slot: "1"},
		{Kind: Machine, Name: "1-of-a-lost-parent", Orphan: true, Slot: "2"},
	}
	for i := range objects {
		objects[i].UID = types.UID(objects[i].Name)
	}
	offers := Plant(objects, nil).Offers(slots())
	if !offers.Needs(Set) || !offers.Needs(Deployment) || offers.Needs(Machine) {
		t.Error("sets and deployments may adopt the orphans")
	}
	if got := offers.Adoptions(1); got != nil {
		t.Errorf("got %v without a parent", got)
	}
	offers.To(Set, &metav1.ObjectMeta{Name: "s", UID: "s"}, everything("y"))
	for acting, want := range map[int][]string{1: {"1-orphan", "2-of-a-lost-parent"}, 2: {"1-of-a-lost-parent"}} {
		var got []string
		for _, a := range offers.Adoptions(acting) {
			got = append(got, a.Orphan.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("adopted for the holder of slot %d (-want +got):\n%s", acting, diff)
		}
	}
	if none := (Forest{}).Offers(slots()); none.Needs(Set) {
		t.Error("parents are needed without orphans")
	}
}

func TestAdopter(t *testing.T) {
	type parent struct {
		name     string
		kind     Kind
		selector *metav1.LabelSelector
	}
	a := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	huge := make([]string, validation.MaxSelector)
	for i := range huge {
		huge[i] = fmt.Sprint(i)
	}
	parents := []parent{
		{"0-ending", Set, a},
		{"none", Set, nil},
		{"everything", Set, &metav1.LabelSelector{}},
		{"second", Set, a},
		{"first", Set, everything(huge[1:]...)},
		{"third", Set, a},
		{"another-kind", Deployment, a},
		{"0-huge", Set, everything(huge...)},
		{"invalid", Set, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}},
	}
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"the first by name": {map[string]string{"a": "b"}, "first"},
		"none matches":      {map[string]string{"x": "9"}, ""},
	} {
		offers := Plant([]Object{{Kind: Machine, Name: "1", Orphan: true, Labels: tc.labels}}, nil).Offers(slots())
		for _, p := range parents {
			meta := &metav1.ObjectMeta{Name: p.name, UID: types.UID(p.name)}
			if p.name == "0-ending" {
				meta.DeletionTimestamp = &metav1.Time{}
			}
			offers.To(p.kind, meta, p.selector)
		}
		got := ""
		for _, adoption := range offers.Adoptions(1) {
			got = adoption.Adopter.Name
		}
		if got != tc.want {
			t.Errorf("%s: adopted by %q, want %q", name, got, tc.want)
		}
	}
}
