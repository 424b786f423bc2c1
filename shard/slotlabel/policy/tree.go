package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Slots maps keys to slots.
type Slots struct {
	// Count of the slots.
	Count int
	// Of returns the slot of a root, from 0 to Count-1.
	Of func(namespace, root string) int
}

// Fit is the relation of an object's label to the slot of its root.
type Fit int

// The values of Fit.
const (
	Fits Fit = iota
	// Unlabeled: the object has no label, or one that names no slot.
	Unlabeled
	// Mislabeled: the label names another slot.
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

// Forest is the objects of a namespace from one live read, with the Nodes of its Machines.
type Forest struct {
	objects []Object
	byUID   map[types.UID]Object
	nodes   map[string]Object
}

// Plant returns the Forest of the objects of a namespace and of Nodes. Nodes that no Machine names
// are excluded.
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

// Root returns the root of an object of the forest. ok is false when a parent is missing: the
// garbage collector is about to delete such an object or to turn it into a root, and until then any
// label is accepted.
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

// actor returns the slot whose holder may label an object of the forest: the slot that it names; if
// it names none, the slot that its nearest labeled ancestor names, whose holder caches that
// ancestor and so finds the objects below it; else the slot that it should name.
func (f Forest) actor(o Object, slots Slots, want int) int {
	for range Kinds() {
		if named, ok := Read(o.Slot, slots.Count); ok {
			return named
		}
		o = f.byUID[o.Parent] // without a parent the zero Object, which names no slot
	}
	return want
}

// IsWhole reports whether every parent that is named is in the forest.
func (f Forest) IsWhole() bool {
	return !slices.ContainsFunc(f.objects, func(o Object) bool {
		_, known := f.byUID[o.Parent]
		return o.Parent != "" && !known
	})
}

// Tree is the objects of a root's tree that do not fit.
type Tree struct {
	// Root of the tree. A MachineDeployment, a MachineSet and a Machine of the same name are one tree:
	// they share a slot.
	Root types.NamespacedName
	// Slot that all of the tree should name.
	Slot int
	// Roots are these objects, as far as they exist and have something below them that does not fit,
	// or do not fit themselves.
	Roots []Object
	unfit []unfit
}

type unfit struct {
	Object
	actor int  // the slot whose holder labels it
	moves bool // the label changes from one slot to another
}

// Trees returns the trees of the forest that do not fit, in the order of their objects.
func (f Forest) Trees(slots Slots) (trees []Tree) {
	byRoot := map[types.NamespacedName]int{} // indices of trees
	add := func(root Object, want int, o unfit) {
		at, known := byRoot[root.Key()]
		if !known {
			at = len(trees)
			byRoot[root.Key()] = at
			trees = append(trees, Tree{Root: root.Key(), Slot: want})
		}
		tree := &trees[at]
		tree.unfit = append(tree.unfit, o)
		if !slices.ContainsFunc(tree.Roots, func(other Object) bool { return other.UID == root.UID }) {
			tree.Roots = append(tree.Roots, root)
		}
	}
	for _, o := range f.objects {
		top, whole := f.Root(o)
		want := slots.Of(top.Namespace, top.Name)
		fit, actor := slots.Judge(o.Slot, want), f.actor(o, slots, want)
		if fit == Mislabeled && !whole {
			continue
		}
		if fit != Fits {
			add(top, want, unfit{Object: o, actor: actor, moves: fit == Mislabeled})
		}
		// Only the holder of a Node's Machine acts on the Node, also where the Node names another slot:
		// that holder labels it. A Machine that names a Node does not own it for that reason: a Node that
		// is not bound to the Machine is left unchanged. It is labeled when it is claimed.
		if node := f.nodes[o.NodeName]; node.isOf(o) && node.Slot != Value(want) {
			add(top, want, unfit{Object: node, actor: actor})
		}
	}
	return trees
}

// isOf reports whether a Node is bound to a Machine.
func (o Object) isOf(m Object) bool {
	return o.Machine == v1alpha1.MachineRef{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// Done returns the tree without the given objects, which were labeled.
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

// Fits reports whether no object is left to be labeled.
func (t Tree) Fits() bool { return len(t.unfit) == 0 }

// Next returns the objects that the holder of the acting slot labels now: of its objects, those of
// the lowest kind, in any order. There are none when the tree fits, and when other holders must act
// first.
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

// Moving returns the objects that the holder of the acting slot hands over to another: nothing may
// be in flight for these objects before that holder labels anything of the tree.
func (t Tree) Moving(acting int) []Object {
	var moving []Object
	for _, o := range t.unfit {
		if o.moves && o.actor == acting {
			moving = append(moving, o.Object)
		}
	}
	return moving
}

// Concerns reports whether the holder of the acting slot has objects to label.
func (t Tree) Concerns(acting int) bool {
	return slices.ContainsFunc(t.unfit, func(o unfit) bool { return o.actor == acting })
}
