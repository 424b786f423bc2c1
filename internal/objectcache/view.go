package objectcache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Nodes are Nodes of a target cluster.
type Nodes = Objects[*corev1.Node]

// View is the cache of the control cluster in a process. Create one with NewView.
type View struct {
	Deployments *Store[*v1alpha1.MachineDeployment]
	Sets        *Store[*v1alpha1.MachineSet]
	Machines    *Store[*v1alpha1.Machine]
	// Classes are the complete classes that this process may need. One that is missing is read from
	// the API server.
	Classes *Store[*v1alpha1.MachineClass]
}

// byNode is the index of machines by the names of their Nodes.
const byNode = "node"

// NewView creates an empty one.
func NewView() *View {
	v := &View{
		Deployments: NewStore[*v1alpha1.MachineDeployment](),
		Sets:        NewStore[*v1alpha1.MachineSet](),
		Machines:    NewStore[*v1alpha1.Machine](),
		Classes:     NewStore[*v1alpha1.MachineClass](),
	}
	_ = v.Machines.AddIndex(byNode, func(m *v1alpha1.Machine) []string { return []string{m.Labels[v1alpha1.LabelNode]} }) // it is empty
	return v
}

// Of returns a View of the objects of one namespace, which it shares with v: nothing else can be
// read there, and it must not be written. Its handlers are called from begin until end, which no
// handler calls: objects that v has at begin are not reported.
func (v *View) Of(namespace string) (of *View, begin, end func()) {
	of = &View{}
	var begins, ends []func()
	note := func(begin, end func()) { begins, ends = append(begins, begin), append(ends, end) }
	of.Deployments = v.Deployments.part(namespace, note)
	of.Sets = v.Sets.part(namespace, note)
	of.Machines = v.Machines.part(namespace, note)
	of.Classes = v.Classes.part(namespace, note)
	return of, func() { call(begins) }, func() { call(ends) }
}

func call(all []func()) {
	for _, f := range all {
		f()
	}
}

// MachinesOnNode returns the machines that name a Node, in no order. Anyone who can write Machines
// can name any.
func (v *View) MachinesOnNode(node string) []*v1alpha1.Machine { return v.Machines.By(byNode, node) }

// MachinesOf returns the machines of a controller, each once. Of the undecodable ones, only the
// metadata is known.
func (v *View) MachinesOf(controller metav1.Object) (decoded, undecodable []*v1alpha1.Machine) {
	decoded, failures := v.Machines.Children(controller)
	for _, f := range failures {
		undecodable = append(undecodable, &v1alpha1.Machine{ObjectMeta: f.ObjectMeta})
	}
	return decoded, undecodable
}
