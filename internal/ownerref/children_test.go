package ownerref

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

var setKind = schema.GroupVersionKind{Group: "g", Version: "v", Kind: "MachineSet"}

func machine(name string, parent *v1alpha1.MachineSet) *v1alpha1.Machine {
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name), Labels: map[string]string{"a": "b"}},
	}
	if parent != nil {
		Adopt(m, parent, setKind)
	}
	return m
}

func set(name string) *v1alpha1.MachineSet {
	return &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name)}}
}

// bench follows machines of sets, of which one selects a=b and one other labels.
func bench(t *testing.T) (c *Children[*v1alpha1.Machine], looked func() []string) {
	t.Helper()
	var names []string
	all := objectcache.New[*v1alpha1.Machine]()
	c = Follow(all, Parents{
		Enqueue: func(key types.NamespacedName) { names = append(names, key.Name) },
		Selectors: func(string) map[string]*metav1.LabelSelector {
			return map[string]*metav1.LabelSelector{
				"fits":      {MatchLabels: map[string]string{"a": "b"}},
				"other":     {MatchLabels: map[string]string{"a": "c"}},
				"nothing":   nil,
				"senseless": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}},
			}
		},
		Gone: func(child types.UID) { names = append(names, "gone:"+string(child)) },
	})
	return c, func() []string {
		defer func() { names = nil }()
		return names
	}
}

func TestParentsAreEnqueued(t *testing.T) {
	one, two := set("one"), set("two")
	c, looked := bench(t)
	for _, tc := range []struct {
		name  string
		event func()
		want  []string
	}{
		{"child of one", func() { c.changed(nil, machine("m", one)) }, []string{"one"}},
		{"orphan", func() { c.changed(nil, machine("m", nil)) }, []string{"fits"}},
		{"same parent", func() { c.changed(machine("m", one), machine("m", one)) }, []string{"one"}},
		{"other parent", func() { c.changed(machine("m", one), machine("m", two)) }, []string{"one", "two"}},
		{"released", func() { c.changed(machine("m", one), machine("m", nil)) }, []string{"one", "fits"}},
		{"gone", func() { c.changed(machine("m", one), nil) }, []string{"gone:m", "one"}},
	} {
		if tc.event(); !slices.Equal(looked(), tc.want) {
			tc.event()
			t.Errorf("%s: enqueued %v, want %v", tc.name, looked(), tc.want)
		}
	}
}

func TestIndexes(t *testing.T) {
	c, _ := bench(t)
	one := set("one")
	for _, m := range []*v1alpha1.Machine{machine("a", one), machine("b", one), machine("c", nil)} {
		c.all.Apply(m, false)
	}
	unrelated := machine("d", one)
	unrelated.Namespace = "another"
	c.all.Apply(unrelated, false)
	if owned, orphans := c.all.Under(one), c.Orphans("n"); len(owned) != 2 || len(orphans) != 1 {
		t.Errorf("%d children, %d orphans", len(owned), len(orphans))
	}
}

func TestAdoptAndRelease(t *testing.T) {
	one := set("one")
	m := machine("m", nil)
	m.OwnerReferences = []metav1.OwnerReference{{Name: "other", UID: "w"}}
	Adopt(m, one, setKind)
	if len(m.OwnerReferences) != 2 || m.OwnerReferences[0].UID != "one" || !metav1.IsControlledBy(m, one) {
		t.Errorf("owners %v", m.OwnerReferences)
	}
	m.Labels[v1alpha1.LabelSlot] = "7"
	Release(m, "one")
	if len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != "w" {
		t.Errorf("owners %v", m.OwnerReferences)
	}
	if len(m.Labels) != 1 {
		t.Errorf("labels %v: it kept the slot of the parent", m.Labels)
	}
}

// A parent that is deleted without its children creates none in their place, so that nothing counts
// them as released.
func TestParentInDeletionRemovesItselfAsOwnerOnly(t *testing.T) {
	for _, ending := range []bool{false, true} {
		one := set("one")
		m := machine("m", one)
		m.Labels[v1alpha1.LabelSlot] = "7"
		if ending {
			one.DeletionTimestamp = &metav1.Time{}
		}
		var written *v1alpha1.Machine
		names, err := ReleaseAll(t.Context(), func(_ context.Context, _, desired *v1alpha1.Machine) (*v1alpha1.Machine, error) {
			written = desired
			return desired, nil
		}, []*v1alpha1.Machine{m}, map[types.UID]bool{}, one)
		if err != nil || !slices.Equal(names, []string{"m"}) || len(written.OwnerReferences) != 0 {
			t.Fatalf("%v, released %v, owners %v", err, names, written.OwnerReferences)
		}
		if kept := written.Labels[v1alpha1.LabelSlot] == "7" && written.Annotations[v1alpha1.AnnotationReleasedBy] == ""; kept != ending {
			t.Errorf("in deletion: %t; labels %v, annotations %v", ending, written.Labels, written.Annotations)
		}
	}
}

func TestInSlotOfReplacesSlotOfTemplate(t *testing.T) {
	parent, child := set("one"), machine("m", nil)
	child.Labels[v1alpha1.LabelSlot] = "9" // of a template
	expect := func(want map[string]string) {
		t.Helper()
		InSlotOf(child, parent)
		if diff := cmp.Diff(want, child.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	}
	expect(map[string]string{"a": "b"})
	parent.Labels = map[string]string{v1alpha1.LabelSlot: "7"}
	expect(map[string]string{"a": "b", v1alpha1.LabelSlot: "7"})
	child.Labels = nil
	expect(map[string]string{v1alpha1.LabelSlot: "7"})
}

// A child that has changed meanwhile, is gone, or does not decode in the answer does not keep the
// others from being written.
func TestRewriteSkipsAChildThatHasChanged(t *testing.T) {
	kind := schema.GroupResource{Resource: "machines"}
	answers := map[string]error{
		"changed": apierrors.NewConflict(kind, "changed", errors.New("no")),
		"gone":    apierrors.NewNotFound(kind, "gone"),
		"unread":  &decode.Failure{Cause: "no"},
		"broken":  errors.New("no"),
	}
	var written []string
	commit := func(_ context.Context, observed, desired *v1alpha1.Machine) (*v1alpha1.Machine, error) {
		if observed.Labels["a"] != "b" || desired.Labels != nil {
			t.Errorf("%s: committed labels %v in place of %v", desired.Name, desired.Labels, observed.Labels)
		}
		written = append(written, desired.Name)
		return desired, answers[desired.Name]
	}
	change := func(m *v1alpha1.Machine) { m.Labels = nil }
	tried := map[types.UID]bool{}
	children := []*v1alpha1.Machine{machine("changed", nil), machine("gone", nil), machine("unread", nil), machine("fine", nil)}
	if changed, err := Rewrite(t.Context(), commit, children, tried, change); err != nil || !changed || len(tried) != 4 {
		t.Errorf("%v, changed meanwhile: %t, tried %v", err, changed, tried)
	}
	if diff := cmp.Diff([]string{"changed", "gone", "unread", "fine"}, written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	if changed, err := Rewrite(t.Context(), commit, children[1:], map[types.UID]bool{}, change); err != nil || changed {
		t.Errorf("%v, changed meanwhile: %t, want no", err, changed)
	}
	if _, err := Rewrite(t.Context(), commit, []*v1alpha1.Machine{machine("broken", nil)}, tried, change); err == nil {
		t.Error("no error")
	}
}

func TestLookAgain(t *testing.T) {
	at := func(name, version string) *v1alpha1.Machine {
		m := machine(name, nil)
		m.ResourceVersion = version
		return m
	}
	adopted := at("taken", "2")
	Adopt(adopted, set("one"), setKind)
	replaced := at("replaced", "3")
	replaced.UID = "another machine of that name"
	live := map[string]*v1alpha1.Machine{"changed": at("changed", "2"), "new": at("new", "2"), "taken": adopted, "replaced": replaced}
	orphans := []*v1alpha1.Machine{at("same", "1"), at("changed", "1"), at("gone", "1"), at("taken", "1"), at("replaced", "1")}
	tried := map[types.UID]bool{"same": true, "changed": true}
	for _, found := range []*v1alpha1.Machine{
		at("same", "1"), at("changed", "2"), at("gone", "2"), at("taken", "2"), at("replaced", "2"), at("new", "2"),
	} {
		var err error
		orphans, err = LookAgain(orphans, tried, found, func(name string) (*v1alpha1.Machine, error) {
			if m, there := live[name]; there {
				return m, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, name)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, o := range orphans {
		got = append(got, o.Name+" "+o.ResourceVersion)
	}
	if diff := cmp.Diff([]string{"same 1", "changed 2", "new 2"}, got); diff != "" {
		t.Errorf("orphans (-want +got):\n%s", diff)
	}
	if !tried["same"] || tried["changed"] {
		t.Errorf("tried are %v: changed objects were not tried in their new version", tried)
	}
	_, err := LookAgain(orphans, tried, at("new", "3"), func(string) (*v1alpha1.Machine, error) { return nil, errors.New("no") })
	if err == nil {
		t.Error("no error")
	}
}

func TestMayAdopt(t *testing.T) {
	now := metav1.Now()
	ending := set("one")
	ending.DeletionTimestamp = &now
	if MayAdopt(set("one"), set("one")) != nil || MayAdopt(set("one"), set("two")) == nil || MayAdopt(set("one"), ending) == nil {
		t.Error("only the parent itself may adopt, and only while it is not deleted")
	}
}

// A selector that can be compiled matches as it does compiled.
func TestMayMatch(t *testing.T) {
	for _, operator := range []metav1.LabelSelectorOperator{"", "In", "NotIn", "Exists", "DoesNotExist"} {
		for _, key := range []string{"a", "c"} {
			for _, value := range []string{"b", "d"} {
				selector := &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
				if operator != "" {
					selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator}}}
				}
				if operator == "In" || operator == "NotIn" {
					selector.MatchExpressions[0].Values = []string{"x", value}
				}
				compiled, err := metav1.LabelSelectorAsSelector(selector)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := mayMatch(selector, map[string]string{"a": "b"}), compiled.Matches(labels.Set{"a": "b"}); got != want {
					t.Errorf("%s: got %v, want %v", compiled, got, want)
				}
			}
		}
	}
	if mayMatch(nil, nil) || !mayMatch(&metav1.LabelSelector{}, nil) {
		t.Error("no selector matches nothing, an empty one everything")
	}
}
