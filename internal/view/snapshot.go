package view

import (
	"cmp"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Snapshot has the objects that views are computed from. A view needs some of them; a reader reads
// no others. All of it is read only.
type Snapshot struct {
	// Now is the time of the reads.
	Now time.Time

	// Objects of the control cluster.
	Deployments []*v1alpha1.MachineDeployment
	Sets        []*v1alpha1.MachineSet
	Machines    []*v1alpha1.Machine
	Classes     []*v1alpha1.MachineClass
	Namespaces  []*corev1.Namespace
	Events      []*eventsv1.Event
	// Leases of the fleet's namespace.
	Leases []*coordinationv1.Lease
	// FleetName is the prefix of the names of Leases.
	FleetName string

	// Objects of the target cluster.
	Nodes   []*corev1.Node
	Pods    []*corev1.Pod
	Budgets []*policyv1.PodDisruptionBudget

	// Timeouts of the fleet.
	Timeouts Timeouts
	// Missing has what could not be read.
	Missing []Missing
}

// What a Missing is about. Views ask for it by these names.
const (
	MissingNodes      = "Nodes"
	MissingLeases     = "Leases"
	MissingEvents     = "Events"
	MissingNamespaces = "Namespaces"
	MissingClasses    = "MachineClasses"
	MissingPods       = "Pods"
	MissingBudgets    = "PodDisruptionBudgets"
)

// Missing describes what could not be read, or was not.
type Missing struct {
	// What is the kind of what is missing, in the plural.
	What string `json:"what"`
	// Right is the right that the read needs; "" where a right does not help.
	Right string `json:"right,omitempty"`
	// Why is the answer to the read.
	Why string `json:"why"`
}

// Misses reports whether a kind could not be read.
func (s Snapshot) Misses(what string) bool {
	return slices.ContainsFunc(s.Missing, func(m Missing) bool { return m.What == what })
}

// Timeouts are settings of the fleet that decide how long machines wait. A machine's own have
// precedence.
type Timeouts struct {
	Creation, Health, Drain, InPlaceUpdate, Preserve time.Duration
	MaxEvictRetries                                  int
}

// DefaultTimeouts are those of a fleet without flags.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Creation: 20 * time.Minute, Health: 10 * time.Minute, Drain: 2 * time.Hour, InPlaceUpdate: 20 * time.Minute,
		Preserve: 96 * time.Hour, MaxEvictRetries: 360,
	}
}

// Object identifies an object of a view.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Kinds of objects.
const (
	KindDeployment = "MachineDeployment"
	KindSet        = "MachineSet"
	KindMachine    = "Machine"
	KindNode       = "Node"
	KindNamespace  = "Namespace"
	KindReplica    = "Replica"
	KindSlot       = "Slot"
	KindFleet      = "Fleet"
)

func objectOf(kind string, o metav1.Object) Object {
	return Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

func compareObjects(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// byName orders objects by namespace and name.
func byName[T metav1.Object](objects []T) []T {
	return slices.SortedFunc(slices.Values(objects), func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// index finds objects by the controllers and names that others refer to.
type index struct {
	sets     map[types.UID][]*v1alpha1.MachineSet // by the UID of their controller, "" without one
	machines map[types.UID][]*v1alpha1.Machine
	nodes    map[string]*corev1.Node
}

func indexOf(s Snapshot) index {
	x := index{map[types.UID][]*v1alpha1.MachineSet{}, map[types.UID][]*v1alpha1.Machine{}, map[string]*corev1.Node{}}
	for _, set := range byName(s.Sets) {
		x.sets[controllerOf(set)] = append(x.sets[controllerOf(set)], set)
	}
	for _, m := range byName(s.Machines) {
		x.machines[controllerOf(m)] = append(x.machines[controllerOf(m)], m)
	}
	for _, n := range s.Nodes {
		x.nodes[n.Name] = n
	}
	return x
}

func controllerOf(o metav1.Object) types.UID {
	if c := metav1.GetControllerOfNoCopy(o); c != nil {
		return c.UID
	}
	return ""
}

// SetsOf returns the sets that a deployment controls.
func (s Snapshot) SetsOf(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet {
	return slices.DeleteFunc(byName(s.Sets), func(set *v1alpha1.MachineSet) bool { return !metav1.IsControlledBy(set, d) })
}
