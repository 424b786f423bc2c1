package policy

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Slots is how keys fall into slots.
type Slots struct {
	// Count of the slots.
	Count int
	// Of returns the slot of a root, from 0 to Count-1.
	Of func(namespace, root string) int
}

// Fit says how an object's label stands to the slot of its root.
type Fit int

// The fits.
const (
	Fits Fit = iota
	// Unlabeled has no label, or one that no slot has.
	Unlabeled
	// Mislabeled names another slot.
	Mislabeled
)

// Judge compares a label with the slot that it should name.
func (s Slots) Judge(value string, want int) Fit {
	switch named, ok := Read(value, s.Count); {
	case !ok:
		return Unlabeled
	case named != want:
		return Mislabeled
	}
	return Fits
}

// Forest is what one live read showed of a namespace, with the Nodes of its Machines.
type Forest struct {
	objects []Object
	byUID   map[types.UID]Object
	nodes   map[string]Object
}

// Plant makes a Forest of the objects of a namespace and of Nodes, of which those that no Machine names are left out.
func Plant(objects, nodes []Object) Forest {
	f := Forest{objects: objects, byUID: map[types.UID]Object{}, nodes: map[string]Object{}}
	for _, o := range objects {
		f.byUID[o.UID] = o
	}
	for _, n := range nodes {
		f.nodes[n.Name] = n
	}
	return f
}

// Root returns the root of an object of the forest. ok is false when a parent is missing: the garbage collector is about
// to take such an object apart or to make a root of it, and until then whatever label it has is good.
func (f Forest) Root(o Object) (root Object, ok bool) {
	for range Kinds() {
		if o.Parent == "" {
			return o, true
		}
		parent, known := f.byUID[o.Parent]
		if !known {
			return o, false
		}
		o = parent
	}
	return o, false // more levels than there are kinds
}

// actor returns the slot whose holder may label an object of the forest: the one that it names; while it names none, the one
// that the nearest above it names, whose holder sees that one and so knows of what is below; else the one that it should
// name.
func (f Forest) actor(o Object, slots Slots, want int) int {
	for range Kinds() {
		if named, ok := Read(o.Slot, slots.Count); ok {
			return named
		}
		parent, known := f.byUID[o.Parent]
		if o.Parent == "" || !known {
			break
		}
		o = parent
	}
	return want
}

// IsWhole says that no object names a parent that is not in the forest.
func (f Forest) IsWhole() bool {
	return !slices.ContainsFunc(f.objects, func(o Object) bool {
		_, known := f.byUID[o.Parent]
		return o.Parent != "" && !known
	})
}

// Tree is what of a root and of all below it does not fit.
type Tree struct {
	// Root of the tree. A MachineDeployment, MachineSet and Machine of one name are one tree: they share a slot.
	Root types.NamespacedName
	// Slot that all of the tree should name.
	Slot  int
	unfit []unfit
}

type unfit struct {
	Object
	actor int  // the slot whose holder labels it
	moves bool // from one slot to another
}

// Trees returns the trees of the forest that do not fit, in the order of their roots.
func (f Forest) Trees(slots Slots) []Tree {
	byRoot := map[types.NamespacedName]*Tree{}
	for _, o := range f.objects {
		top, whole := f.Root(o)
		want := slots.Of(top.Namespace, top.Name)
		fit, actor := slots.Judge(o.Slot, want), f.actor(o, slots, want)
		if fit == Mislabeled && !whole {
			continue
		}
		tree := byRoot[top.Key()]
		if tree == nil {
			tree = &Tree{Root: top.Key(), Slot: want}
			byRoot[top.Key()] = tree
		}
		if fit != Fits {
			tree.unfit = append(tree.unfit, unfit{Object: o, actor: actor, moves: fit == Mislabeled})
		}
		// Only the holder of a Node's Machine acts on the Node, whatever slot the Node names: that holder labels it. That a Machine
		// names a Node does not make the Node the Machine's: a Node that is not bound to the Machine is left unchanged. It is
		// labelled when it is claimed.
		if node, known := f.nodes[o.NodeName]; known && o.Kind == Machine && node.isOf(o) && node.Slot != Value(want) {
			tree.unfit = append(tree.unfit, unfit{Object: node, actor: actor})
		}
	}
	var trees []Tree
	for _, tree := range byRoot {
		if !tree.Fits() {
			trees = append(trees, *tree)
		}
	}
	slices.SortFunc(trees, func(a, b Tree) int { return cmp.Compare(a.Root.String(), b.Root.String()) })
	return trees
}

// isOf reports whether a Node is bound to a Machine.
func (o Object) isOf(m Object) bool {
	return o.Machine == v1alpha1.MachineRef{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// Done returns the tree without objects that were labelled.
func (t Tree) Done(objects ...Object) Tree {
	type name struct {
		kind Kind
		name string
	}
	done := map[name]bool{}
	for _, o := range objects {
		done[name{o.Kind, o.Name}] = true
	}
	t.unfit = slices.DeleteFunc(slices.Clone(t.unfit), func(u unfit) bool { return done[name{u.Kind, u.Name}] })
	return t
}

// Fits says that nothing is left to be labelled.
func (t Tree) Fits() bool { return len(t.unfit) == 0 }

// Next returns what the holder of the acting slot labels now: its objects of the lowest kind that has any to be labelled,
// in any order. There are none when the tree fits, and when other holders have to act first.
func (t Tree) Next(acting int) []Object {
	for _, kind := range Kinds() {
		var mine []Object
		open := false
		for _, o := range t.unfit {
			if o.Kind == kind {
				open = true
				if o.actor == acting {
					mine = append(mine, o.Object)
				}
			}
		}
		if open {
			return mine
		}
	}
	return nil
}

// Moving returns what the holder of the acting slot gives to another: it has to see to it that nothing is in flight for
// these objects before it labels anything of the tree.
func (t Tree) Moving(acting int) []Object {
	var moving []Object
	for _, o := range t.unfit {
		if o.moves && o.actor == acting {
			moving = append(moving, o.Object)
		}
	}
	return moving
}

// Actors returns the slots whose holders have something to label, in order.
func (t Tree) Actors() []int {
	var actors []int
	for _, o := range t.unfit {
		actors = append(actors, o.actor)
	}
	slices.Sort(actors)
	return slices.Compact(actors)
}
