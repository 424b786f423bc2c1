package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestOffered(t *testing.T) {
	f := Plant([]Object{
		{Kind: Machine, Name: "1-orphan", Orphan: true},
		{Kind: Machine, Name: "1-labeled", Orphan: true, Slot: "1"},
		{Kind: Machine, Name: "1-deleting", Orphan: true, Deleting: true},
		{Kind: Machine, Name: "1-child", Parent: "p"},
		{Kind: Set, Name: "2-orphan", Orphan: true},
		{Kind: Machine, Name: "2-of-a-lost-parent", Orphan: true, Slot: "1"},
		{Kind: Machine, Name: "1-of-a-lost-parent", Orphan: true, Slot: "2"},
	}, nil)
	var got []string
	for _, o := range f.Offered(slots(), 1) {
		got = append(got, o.Name)
	}
	if diff := cmp.Diff([]string{"1-orphan", "2-of-a-lost-parent"}, got); diff != "" {
		t.Errorf("offered by the holder of slot 1 (-want +got):\n%s", diff)
	}
}

func TestAdopter(t *testing.T) {
	set := func(name string, selector *metav1.LabelSelector) *v1alpha1.MachineSet {
		return &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSetSpec{Selector: selector}}
	}
	a := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	ending := set("0", a)
	ending.DeletionTimestamp = &metav1.Time{}
	parents := []*v1alpha1.MachineSet{
		ending, set("none", nil), set("everything", &metav1.LabelSelector{}), set("second", a), set("first", a),
		set("invalid", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}),
	}
	selectorOf := func(s *v1alpha1.MachineSet) *metav1.LabelSelector { return s.Spec.Selector }
	got, ok := Adopter(Object{Labels: map[string]string{"a": "b"}}, parents, selectorOf)
	if !ok || got.Name != "first" {
		t.Errorf("adopted by %v, %v", got, ok)
	}
	if got, ok := Adopter(Object{Labels: map[string]string{"a": "c"}}, parents, selectorOf); ok {
		t.Errorf("adopted by %s, which does not match", got.Name)
	}
}
