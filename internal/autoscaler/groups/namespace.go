package groups

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// Group is a node group as the autoscaler sees it.
type Group struct {
	ID       string
	Min, Max int32
	// Debug describes it to people.
	Debug string
}

// Node is a Node as the autoscaler describes it. It may not exist: for an instance without a Node
// the autoscaler invents one whose name and provider ID are the instance's ID.
type Node struct {
	Name, ProviderID string
	Annotations      map[string]string
}

// State is that of an instance.
type State int

// The states of instances.
const (
	Running State = iota + 1
	Creating
	Deleting
)

// Instance is a Machine as the autoscaler sees it.
type Instance struct {
	ID    string
	State State
	// Failure is why it cannot be created; nil when there is no error.
	Failure *Failure
}

// Namespace holds what was read of a namespace. NewNamespace returns one; it is not changed
// afterwards.
type Namespace struct {
	name    string
	held    string
	off     string
	pods    map[string]int64
	groups  []*group // by name
	byName  map[string]*group
	classes map[string]*v1alpha1.MachineClass

	sets       map[types.UID]types.UID // the deployments of sets
	byUID      map[types.UID]*group
	machines   map[string]Machine
	byProvider map[string][]string // names of machines
}

// group is a node group with what its answers depend on.
type group struct {
	d        *v1alpha1.MachineDeployment
	limits   validation.NodeGroup
	machines []string // names, sorted
}

// World has the objects of a namespace in the order in which they were read: MachineDeployments
// first, and Machines last.
type World struct {
	Name        string
	Deployments []*v1alpha1.MachineDeployment
	// Sets has the UID of the MachineDeployment of each MachineSet.
	Sets     map[types.UID]types.UID
	Machines []Machine
	Classes  []*v1alpha1.MachineClass
	// Held is why deletions are held in the namespace, "" if they are not.
	Held string
	// Off is why the fleet does nothing in the namespace, "" if it does.
	Off string
	// Pods has how many pods the machine configuration of a MachineDeployment allows on a Node, by
	// name; it has none where that is not set.
	Pods map[string]int64
}

// NewNamespace returns the namespace that was read.
func NewNamespace(w World) *Namespace {
	n := &Namespace{
		name: w.Name, held: w.Held, off: w.Off, pods: w.Pods, sets: w.Sets, byName: map[string]*group{}, byUID: map[types.UID]*group{},
		classes: map[string]*v1alpha1.MachineClass{}, machines: map[string]Machine{}, byProvider: map[string][]string{},
	}
	for _, d := range w.Deployments {
		if limits, ok := limitsOf(d); ok {
			g := &group{d: d, limits: limits}
			n.groups = append(n.groups, g)
			n.byName[d.Name], n.byUID[d.UID] = g, g
		}
	}
	slices.SortFunc(n.groups, func(a, b *group) int { return strings.Compare(a.d.Name, b.d.Name) })
	for _, m := range w.Machines {
		n.machines[m.Name] = m
		if m.ProviderID != "" {
			n.byProvider[m.ProviderID] = append(n.byProvider[m.ProviderID], m.Name)
		}
		if g := n.groupOf(m); g != nil {
			g.machines = append(g.machines, m.Name)
		}
	}
	for _, g := range n.groups {
		slices.Sort(g.machines)
	}
	for _, c := range w.Classes {
		n.classes[c.Name] = c
	}
	return n
}

// With returns the namespace with another version of a MachineDeployment, unless that is older.
func (n *Namespace) With(d *v1alpha1.MachineDeployment) *Namespace {
	old := n.byUID[d.UID]
	limits, ok := limitsOf(d)
	if old == nil || !ok || objectversion.Compare(d.ResourceVersion, old.d.ResourceVersion) < 0 {
		return n // the next read shows it
	}
	next := *n
	next.byName, next.byUID, next.groups = map[string]*group{}, map[types.UID]*group{}, nil
	for _, g := range n.groups {
		if g == old {
			g = &group{d: d, limits: limits, machines: g.machines}
		}
		next.groups = append(next.groups, g)
		next.byName[g.d.Name], next.byUID[g.d.UID] = g, g
	}
	return &next
}

// limitsOf returns what a MachineDeployment sets for the autoscaler; it is not ok if it is no
// group.
func limitsOf(d *v1alpha1.MachineDeployment) (limits validation.NodeGroup, ok bool) {
	if d.DeletionTimestamp != nil {
		return limits, false
	}
	limits, ok, _ = validation.NodeGroupOf(d.Annotations)
	return limits, ok
}

// groupOf returns the group of a Machine, by the controllers above it; nil if it is in none.
func (n *Namespace) groupOf(m Machine) *group {
	deployment, ok := n.sets[m.Set]
	if !ok || m.Set == "" {
		return nil
	}
	return n.byUID[deployment]
}

// group returns the group with an ID.
func (n *Namespace) group(id string) (*group, error) {
	if g := n.byName[id]; g != nil {
		return g, nil
	}
	return nil, notAGroup(n.name, id)
}

func notAGroup(namespace, id string) error {
	return refuse(NotFound, "expected a MachineDeployment of namespace %s with the annotation %s, got %.80q; annotate it, or call Refresh",
		namespace, v1alpha1.AnnotationMaxSize, id)
}

// Groups returns all node groups, by name.
func (n *Namespace) Groups() []Group {
	all := make([]Group, len(n.groups))
	for i, g := range n.groups {
		all[i] = n.describe(g)
	}
	return all
}

// describe returns a group. While no machine of it is created it is as large as it may be, and
// while none may be deleted as small: an autoscaler that knows the limits sends no calls that are
// refused.
func (n *Namespace) describe(g *group) Group {
	is, size := Group{ID: g.d.Name, Min: g.limits.Min, Max: g.limits.Max}, n.size(g)
	debug := []string{fmt.Sprintf("MachineDeployment %s/%s, class %s", g.d.Namespace, g.d.Name, g.d.Spec.Template.Spec.Class.Name)}
	if class := n.classes[g.d.Spec.Template.Spec.Class.Name]; class != nil && class.NodeTemplate != nil {
		debug = append(debug, "zone "+class.NodeTemplate.Zone)
	}
	if n.keepsAll(g) {
		is.Min, is.Max = max(is.Min, size), max(is.Max, size)
	}
	if why := n.createsNone(g.d); why != "" {
		is.Min, is.Max = min(is.Min, size), size
		debug = append(debug, "no machines are created: "+why)
	}
	if n.held != "" {
		debug = append(debug, "deletions are held: "+n.held)
	}
	if isRolling(g.d) {
		debug = append(debug, "a rollout is in progress")
	}
	is.Debug = strings.Join(debug, "; ")
	return is
}

// keepsAll reports whether no machine of a group may be removed.
func (n *Namespace) keepsAll(g *group) bool { return n.held != "" || n.off != "" || isRolling(g.d) }

// size returns how many machines a group is to have. While none are created it has no more than
// there are: an autoscaler would wait for the others, and try to give them up with calls that are
// refused, each of which ends its loop.
func (n *Namespace) size(g *group) int32 {
	if n.createsNone(g.d) == "" {
		return g.d.Spec.Replicas
	}
	going, standing := namedOn(g.d), int32(0)
	for _, name := range g.machines {
		if !n.machines[name].Deleting && !going[name] {
			standing++
		}
	}
	return min(g.d.Spec.Replicas, standing)
}

// createsNone returns why no machines of a MachineDeployment are created, "" if they are.
func (n *Namespace) createsNone(d *v1alpha1.MachineDeployment) string {
	if n.off != "" {
		return n.off
	}
	return createsNone(d)
}

// createsNone returns why the fleet creates no machines of a MachineDeployment, "" if it does.
func createsNone(d *v1alpha1.MachineDeployment) string {
	if frozen := machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentFrozen); frozen.IsTrue() {
		return "it is frozen, " + frozen.Reason
	}
	valid := machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentValid)
	if valid.Status == corev1.ConditionFalse {
		return "it is invalid, " + valid.Reason
	}
	return ""
}

// isRolling reports whether machines of a MachineDeployment are being replaced. Then its Nodes are
// kept from the autoscaler, and a machine that fails is one of the rollout, without which the
// replicas would not decrease. While all of its machines are of its current template, as those of
// a new MachineDeployment that never had as many as it wants, none is replaced.
func isRolling(d *v1alpha1.MachineDeployment) bool {
	is := machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentProgressing)
	switch is.Reason {
	case "", v1alpha1.ReasonNewMachineSetAvailable, v1alpha1.ReasonDeploymentPaused:
		return false
	}
	return d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas
}

// GroupOf returns the group of a Node. It is not ok for a Node that is in none, also because that
// of its Machine is not scaled.
func (n *Namespace) GroupOf(node Node) (is Group, ok bool) {
	m, found := n.find(node)
	if !found {
		return Group{}, false
	}
	g := n.groupOf(m)
	if g == nil {
		return Group{}, false
	}
	return n.describe(g), true
}

// find returns the Machine of a Node or of an instance.
func (n *Namespace) find(node Node) (m Machine, ok bool) {
	if name, requested := strings.CutPrefix(node.ProviderID, Requested); requested {
		m, ok = n.machines[name]
		return m, ok
	}
	names := n.byProvider[node.ProviderID]
	switch {
	case node.ProviderID == "":
		return n.bound(node)
	case len(names) == 1:
		return n.machines[names[0]], true
	case len(names) > 1: // an edit: the label decides, which a controller has written
		for _, name := range names {
			if n.machines[name].Node == node.Name {
				return n.machines[name], true
			}
		}
		return Machine{}, false
	}
	return n.bound(node)
}

// bound returns the Machine that a Node is bound to by its annotation, and whose VM it may be:
// where provider IDs have several forms, or the Node has none yet. A Machine of that name that was
// created since is another one.
func (n *Namespace) bound(node Node) (m Machine, ok bool) {
	ref, isBound := v1alpha1.MachineOf(&metav1.ObjectMeta{Annotations: node.Annotations})
	if !isBound || ref.Namespace != n.name {
		return Machine{}, false
	}
	m, ok = n.machines[ref.Name]
	if !ok || m.UID != ref.UID || node.ProviderID != "" && !driver.SameVM(m.ProviderID, node.ProviderID) {
		return Machine{}, false
	}
	return m, true
}

// Members returns the Machines of a group, by name, and the UID of its MachineDeployment.
func (n *Namespace) Members(id string) (members []Machine, deployment types.UID, err error) {
	g, err := n.group(id)
	if err != nil {
		return nil, "", err
	}
	for _, name := range g.machines {
		members = append(members, n.machines[name])
	}
	return members, g.d.UID, nil
}

// TargetSize returns the size that was requested for a group.
func (n *Namespace) TargetSize(id string) (int32, error) {
	g, err := n.group(id)
	if err != nil {
		return 0, err
	}
	return n.size(g), nil
}

// Instances returns the Machines of a group, by name. An autoscaler deletes all that have a failure
// in one call, again and again until it succeeds: so as many have one as may be deleted.
func (n *Namespace) Instances(id string) ([]Instance, error) {
	g, err := n.group(id)
	if err != nil {
		return nil, err
	}
	going, deletable := namedOn(g.d), g.d.Spec.Replicas-g.limits.Min
	if n.keepsAll(g) {
		deletable = 0
	}
	all := make([]Instance, len(g.machines))
	for i, name := range g.machines {
		m := n.machines[name]
		all[i] = Instance{ID: m.id(), State: Running}
		switch {
		case m.Deleting || going[name]:
			all[i].State = Deleting
		case !m.Joined:
			all[i].State = Creating
			if m.Failure != nil && !m.Kept && deletable > 0 {
				all[i].Failure = m.Failure
				deletable--
			}
		}
	}
	return all, nil
}

// Options returns what the annotations of a group set.
func (n *Namespace) Options(id string) (validation.NodeGroup, error) {
	g, err := n.group(id)
	if err != nil {
		return validation.NodeGroup{}, err
	}
	return g.limits, nil
}
