package policy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

func TestRead(t *testing.T) {
	for value, want := range map[string]int{
		"0": 0, "7": 7, "": -1, "8": -1, "-2": -1, "07": -1, "+7": -1, "7\n": -1, "seven": -1, "99999999999999999999": -1,
	} {
		got, ok := Read(value, 8)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: slot %d, want %d", value, got, want)
		}
	}
}

func TestOf(t *testing.T) {
	yes := true
	owner := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: "Other", UID: "w"}, {Kind: kind, Name: "parent", UID: "p", Controller: &yes}}
	}
	labels := map[string]string{v1alpha1.LabelNode: "node", v1alpha1.LabelSlot: "3"}
	machine := map[string]string{v1alpha1.AnnotationMachine: "n/m/u"}
	for _, tc := range []struct {
		name   string
		kind   Kind
		owners []metav1.OwnerReference
		want   Object
	}{
		{"machine of a set", Machine, owner("MachineSet"), Object{Parent: "p", ParentName: "parent", NodeName: "node"}},
		{"machine of another kind", Machine, owner("Worker"), Object{NodeName: "node"}},
		{"machine of none", Machine, nil, Object{Orphan: true, Labels: labels, NodeName: "node"}},
		{"set of a deployment", Set, owner("MachineDeployment"), Object{Parent: "p", ParentName: "parent"}},
		{"set of a set", Set, owner("MachineSet"), Object{}},
		{"deployment of none", Deployment, nil, Object{}},
		{"Node of a machine", Node, owner("Machine"), Object{Machine: v1alpha1.MachineRef{Namespace: "n", Name: "m", UID: "u"}}},
	} {
		got := Of(tc.kind, &metav1.ObjectMeta{Name: "n", OwnerReferences: tc.owners, Labels: labels, Annotations: machine})
		tc.want.Kind, tc.want.Name, tc.want.Slot = tc.kind, "n", "3"
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// slots has four slots; a root whose name is a digit has that slot.
func slots() Slots {
	return Slots{Count: 4, Of: func(_, root string) int { return int(root[0]-'0') % 4 }}
}

// tree returns the tree of a root, which is empty if it fits.
func tree(f Forest, root string) Tree {
	for _, t := range f.Trees(slots()) {
		if t.Root.Name == root {
			return t
		}
	}
	return Tree{}
}

func TestTreeIsLabeledBottomUp(t *testing.T) {
	objects := []Object{
		{Kind: Deployment, Name: "1", UID: "d"},
		{Kind: Set, Name: "s", UID: "s", Parent: "d"},
		{Kind: Machine, Name: "m", UID: "m", Parent: "s", NodeName: "n"},
		{Kind: Machine, Name: "old", UID: "o", Parent: "s", Slot: "2"},
		{Kind: Machine, Name: "dangling", UID: "x", Parent: "gone", Slot: "2"},
		{Kind: Machine, Name: "2", UID: "2"},
	}
	nodes := []Object{
		{Kind: Node, Name: "n", Machine: v1alpha1.MachineRef{Name: "m", UID: "m"}}, {Kind: Node, Name: "foreign"},
	}
	for _, tc := range []struct {
		name         string
		labeled      []string
		acting       int
		want, moving []string
	}{
		{"the Node", nil, 1, []string{"n"}, nil},
		{"others wait for the Node", nil, 2, nil, []string{"old"}},
		{"the machine", []string{"n"}, 1, []string{"m"}, nil},
		{"the machine of another slot", []string{"n"}, 2, []string{"old"}, []string{"old"}},
		{"the root's holder waits for it", []string{"n", "m"}, 1, nil, nil},
		{"the set", []string{"n", "m", "old"}, 1, []string{"s"}, nil},
		{"the root", []string{"n", "m", "old", "s"}, 1, []string{"1"}, nil},
		{"all fit", []string{"n", "m", "old", "s", "1"}, 1, nil, nil},
	} {
		names := func(objects []Object) (names []string) {
			for _, o := range objects {
				names = append(names, o.Name)
			}
			return names
		}
		label := func(objects []Object) []Object {
			objects = slices.Clone(objects)
			for i, o := range objects {
				if slices.Contains(tc.labeled, o.Name) {
					objects[i].Slot = "1"
				}
			}
			return objects
		}
		tree := tree(Plant(label(objects), label(nodes)), "1")
		if diff := cmp.Diff(tc.want, names(tree.Next(tc.acting))); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		if diff := cmp.Diff(tc.moving, names(tree.Moving(tc.acting))); diff != "" {
			t.Errorf("%s, moving: %s", tc.name, diff)
		}
		if tree.Fits() != (len(tc.labeled) == 5) {
			t.Errorf("%s: fits %v", tc.name, tree.Fits())
		}
	}
}

// A client that may write a Machine can write the name of any Node into it.
func TestNodeNotBoundToTheMachineIsLeftUnchanged(t *testing.T) {
	machine := Object{Kind: Machine, Namespace: "ns", Name: "1", UID: "u", Slot: "1", NodeName: "n"}
	for _, bound := range []v1alpha1.MachineRef{
		{}, {Namespace: "other", Name: "1", UID: "u"}, {Namespace: "ns", Name: "2", UID: "u"}, {Namespace: "ns", Name: "1", UID: "before"},
	} {
		for _, slot := range []string{"", "2"} {
			f := Plant([]Object{machine}, []Object{{Kind: Node, Name: "n", Machine: bound, Slot: slot}})
			if trees := f.Trees(slots()); len(trees) > 0 {
				t.Errorf("Node in slot %q, bound to %s: %+v would be labeled", slot, bound, trees)
			}
		}
	}
	f := Plant([]Object{machine}, []Object{
		{Kind: Node, Name: "n", Machine: v1alpha1.MachineRef{Namespace: "ns", Name: "1", UID: "u"}, Slot: "2"},
	})
	if trees := f.Trees(slots()); len(trees) != 1 {
		t.Errorf("the machine's own Node is not labeled: %+v", trees)
	}
}

// The holder of slot 1 does not cache the set, and so cannot find that the machine is below its
// root.
func TestUnlabeledObjectsBelowAMislabeledOneAreLabeledByItsObserver(t *testing.T) {
	objects := []Object{
		{Kind: Deployment, Name: "1", UID: "d", Slot: "1"},
		{Kind: Set, Name: "s", UID: "s", Parent: "d", Slot: "2"},
		{Kind: Machine, Name: "m", UID: "m", Parent: "s"},
	}
	forest := Plant(objects, nil)
	tree := tree(forest, "1")
	if !tree.Concerns(2) || tree.Concerns(1) {
		t.Error("want slot 2 to act, and no other")
	}
	if !forest.IsWhole() || Plant(objects[1:], nil).IsWhole() {
		t.Error("want the forest whole, and not without the deployment")
	}
	for _, want := range []string{"m", "s"} {
		next := tree.Next(2)
		if len(next) != 1 || next[0].Name != want {
			t.Errorf("next are %v, want %s", next, want)
		}
		tree = tree.Done(next...)
	}
}

func TestObjectWithoutItsParentKeepsItsLabelOrIsLabeledByItsName(t *testing.T) {
	dangling := Object{Kind: Machine, Name: "3", UID: "x", Parent: "gone"}
	if got := tree(Plant([]Object{dangling}, nil), dangling.Name).Next(3); len(got) != 1 {
		t.Errorf("without a label: %v, want it labeled, otherwise no replica would delete it", got)
	}
	dangling.Slot = "1"
	if len(Plant([]Object{dangling}, nil).Trees(slots())) > 0 {
		t.Error("with a label: it is relabeled although its parent is not known")
	}
}

// A label that is refused is reported on each of them.
func TestRootsOfOneNameAreOneTree(t *testing.T) {
	roots := []Object{{Kind: Deployment, Name: "1", UID: "d", Slot: "1"}, {Kind: Set, Name: "1", UID: "s"}}
	child := func(uid, parent types.UID) Object { return Object{Kind: Machine, UID: uid, Parent: parent} }
	got := tree(Plant(append(roots, child("a", "d"), child("b", "s"), child("c", "d")), nil), "1").Roots
	slices.Reverse(got)
	if diff := cmp.Diff(roots, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParentsInACycleHaveNoRoot(t *testing.T) {
	f := Plant([]Object{{Kind: Machine, UID: "a", Parent: "b"}, {Kind: Set, UID: "b", Parent: "a"}}, nil)
	if _, ok := f.Root(f.objects[0]); ok {
		t.Error("a root was found")
	}
}

// world is a namespace with all its objects in any state, and holders that act in any order.
type world struct{ objects, nodes []Object }

func draw(t *rapid.T) *world {
	w := &world{}
	value := rapid.SampledFrom([]string{"", "0", "1", "2", "3", "4", "nonsense"})
	count := func(name string) int { return rapid.IntRange(0, 3).Draw(t, name) }
	add := func(kind Kind, name string, parent types.UID) types.UID {
		o := Object{Kind: kind, Name: name, UID: types.UID(name), Parent: parent, Slot: value.Draw(t, "label of "+name)}
		if kind == Machine {
			o.NodeName = "node-" + name
			w.nodes = append(w.nodes, Object{Kind: Node, Name: o.NodeName, Slot: value.Draw(t, "label of "+o.NodeName)})
		}
		w.objects = append(w.objects, o)
		return o.UID
	}
	for d := range count("deployments") {
		deployment := add(Deployment, fmt.Sprint(d), "")
		for s := range count("sets") {
			set := add(Set, fmt.Sprintf("%d-%d", d, s), deployment)
			for m := range count("machines") {
				add(Machine, fmt.Sprintf("%d-%d-%d", d, s, m), set)
			}
		}
	}
	for m := range count("orphans") {
		add(Machine, fmt.Sprintf("%d-orphan", m), "")
	}
	return w
}

// write labels an object as the holder of the acting slot, and checks that it may.
func (w *world) write(t *rapid.T, o Object, acting, want int) {
	if named, ok := Read(o.Slot, 4); ok && named != acting && o.Kind != Node {
		t.Fatalf("the holder of slot %d relabels %s %s of slot %d", acting, o.Kind, o.Name, named)
	}
	for _, set := range [][]Object{w.objects, w.nodes} {
		for i := range set {
			if set[i].Kind == o.Kind && set[i].Name == o.Name {
				set[i].Slot = Value(want)
			}
		}
	}
	if o.Parent != "" || o.Kind == Node {
		return
	}
	if !tree(Plant(w.objects, w.nodes), o.Name).Fits() {
		t.Fatalf("root %s is labeled before its tree fits", o.Name)
	}
}

func TestAllHoldersTogetherCompleteEveryTree(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		w := draw(t)
		for range 200 {
			trees := Plant(w.objects, w.nodes).Trees(slots())
			if len(trees) == 0 {
				return
			}
			for _, tree := range trees {
				acting := rapid.SampledFrom(tree.unfit).Draw(t, "acting").actor
				for _, o := range tree.Next(acting) {
					if rapid.IntRange(0, 3).Draw(t, "written") > 0 {
						w.write(t, o, acting, tree.Slot)
						tree = tree.Done(o)
					}
				}
			}
		}
		t.Fatal("the trees do not fit after 200 rounds")
	})
}
