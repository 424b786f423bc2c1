package update

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update/candidates"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// sight contains what a pass has read of the Nodes that its pool selects or refers to, before it is
// resolved which of them are the pool's.
type sight struct {
	stamp.Standing

	machines  map[string]*machinev1alpha1.Machine // of a pool by reference, by the name of the Node
	referring map[string][]string                 // the pools that refer to the machine of a Node, by its name
	problem   string
}

// observe records in the pass what is known of its pool and Nodes; with isLive, what the API server
// has. isKnown is false while that is not known, and when the pool is gone. Errors: those of
// requests.
func (c *Controller) observe(ctx context.Context, p *pass, isLive bool) (isKnown bool, err error) {
	if isLive {
		if isThere, err := c.readPool(ctx, p); err != nil || !isThere {
			return false, err
		}
	}
	see := c.seeSelected
	if p.pool.Spec.MachineRef != nil {
		see = c.seeReferred
	}
	p.sight = sight{}
	if isKnown, err := see(ctx, p, isLive); err != nil || !isKnown {
		return false, err
	}
	members := candidates.Members(c.otherPools(p.pool), p.sight.Nodes, p.sight.referring)
	p.world = candidates.World{
		Now: c.cfg.Clock.Now(), Pool: p.pool, Live: isLive, Prefix: c.cfg.Prefix,
		Nodes: members.Of[p.pool.Name], Conflicts: members.Conflicts[p.pool.Name],
		Absent: p.sight.Absent, Leaving: p.sight.Leaving, Held: p.sight.Held, Problem: p.sight.problem,
		Unsettled: c.isUnsettled(), Hold: c.hold(p.pool), Drains: c.drains.reports(p.pool.Name),
	}
	return true, nil
}

// otherPools returns all pools, the one of the pass as the pass knows it.
func (c *Controller) otherPools(pool *v1alpha1.MachineConfigPool) []*v1alpha1.MachineConfigPool {
	all := []*v1alpha1.MachineConfigPool{pool}
	for _, other := range c.cfg.Pools.Pools() {
		if other.Name != pool.Name {
			all = append(all, other)
		}
	}
	return all
}

// hold returns why no Node of a pool may begin an update; "" when Nodes may.
func (c *Controller) hold(pool *v1alpha1.MachineConfigPool) string {
	why, held := c.cfg.Held(c.namespaceOf(pool))
	if held && why == "" {
		return "it is not known yet whether they are"
	}
	return why
}

// seeSelected sees the Nodes that the pool selects by labels. Those of machines that another pool
// refers to are not the pool's.
func (c *Controller) seeSelected(ctx context.Context, p *pass, isLive bool) (isKnown bool, err error) {
	selector, err := metav1.LabelSelectorAsSelector(p.pool.Spec.NodeSelector)
	if err != nil || selector.Empty() {
		c.watches.drop(p.pool.Name)
		if err != nil {
			p.sight.problem = fmt.Sprintf("spec.nodeSelector must be a valid selector: %v", err)
		}
		return true, nil
	}
	if isLive {
		p.sight.Nodes, err = c.list(ctx, selector.String())
	} else {
		nodes, isKnown := c.selected(p.pool.Name, selector)
		if !isKnown {
			return false, nil
		}
		for _, node := range nodes {
			p.sight.Nodes = append(p.sight.Nodes, c.nodes.Newest(node))
		}
	}
	if err != nil || !c.refers() {
		return err == nil, err
	}
	p.sight.referring = map[string][]string{}
	pools := c.cfg.Pools.Pools()
	for _, node := range p.sight.Nodes {
		root, err := c.roots.of(ctx, node)
		if err != nil {
			return false, err
		}
		if names := referring(pools, root); len(names) > 0 {
			p.sight.referring[node.Name] = names
		}
	}
	return true, nil
}

// selected returns the cached Nodes that a pool selects. isKnown is false while they are not; the
// pool is enqueued then.
func (c *Controller) selected(pool string, selector labels.Selector) (nodes []*corev1.Node, isKnown bool) {
	if c.cfg.Cluster.Name == "" {
		return c.watches.get(pool, selector.String())
	}
	for _, node := range c.cfg.Cluster.Nodes.All() {
		if selector.Matches(labels.Set(node.Labels)) {
			nodes = append(nodes, node)
		}
	}
	return nodes, true
}

// bytesOfList bounds what is read for one live list of the Nodes of a cluster that has a name.
const bytesOfList = 1 << 30

// list returns the Nodes that a selector selects as the API server has them. Of a cluster that has
// a name, whose API server may send any, these are only those that are cached, which are bounded,
// and take about as much memory.
func (c *Controller) list(ctx context.Context, selector string) ([]*corev1.Node, error) {
	cluster := c.cfg.Cluster
	if cluster.Name == "" {
		return c.watches.list(ctx, selector, func(*corev1.Node) bool { return true }, 0, 0)
	}
	most := int64(1 << 20)
	for _, node := range cluster.Nodes.All() {
		most += 2 * objectcache.SizeOf(node)
	}
	return c.watches.list(ctx, selector, cluster.Nodes.Shows, bytesOfList, most)
}

// seeReferred sees the Nodes of the machines that the pool refers to. A cached Node that is missing
// in a live list counts as absent.
func (c *Controller) seeReferred(ctx context.Context, p *pass, isLive bool) (isKnown bool, err error) {
	ref := *p.pool.Spec.MachineRef
	sets, roll, slot, problem := c.setsOf(ref)
	if problem != "" {
		p.sight.problem = problem
		return true, nil
	}
	nodeNamed := func(name string) *corev1.Node {
		node, known := c.cfg.Cluster.Nodes.Get(types.NamespacedName{Name: name})
		if !known {
			return nil
		}
		return c.nodes.Newest(node)
	}
	if isLive {
		selector := "" // Nodes of a cluster that has a name have no slot
		if c.cfg.Cluster.Name == "" {
			selector = labels.Set{machinev1alpha1.LabelSlot: slot}.String()
		}
		listed, err := c.list(ctx, selector)
		if err != nil {
			return false, err
		}
		byName := map[string]*corev1.Node{}
		for _, node := range listed {
			byName[node.Name] = node
		}
		nodeNamed = func(name string) *corev1.Node { return byName[name] }
	}
	p.sight.machines, p.sight.referring = map[string]*machinev1alpha1.Machine{}, map[string][]string{}
	names := referring(c.otherPools(p.pool), ref)
	var machines []*machinev1alpha1.Machine
	for _, set := range sets {
		machines = append(machines, c.cfg.View.Machines.Under(set)...)
	}
	p.sight.Standing = stamp.Stand(machines, roll, func(m *machinev1alpha1.Machine) *corev1.Node {
		node := nodeNamed(m.Labels[machinev1alpha1.LabelNode])
		if node == nil || nodeowner.Relate(m, node) != nodeowner.Own {
			return nil
		}
		p.sight.machines[node.Name], p.sight.referring[node.Name] = m, names
		return node
	})
	return true, nil
}

// setsOf returns the MachineSets that a pool refers to, what their MachineDeployment does to their
// machines, and the label of their slot.
func (c *Controller) setsOf(ref v1alpha1.MachineReference) (sets []*machinev1alpha1.MachineSet, roll stamp.Roll, slot, problem string) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if ref.Kind == stamp.KindDeployment {
		d, known := c.cfg.View.Deployments.Get(key)
		if !known {
			return nil, roll, "", fmt.Sprintf("spec.machineRef must name a MachineDeployment that exists, got %s.", key)
		}
		sets = c.cfg.View.Sets.Under(d)
		return sets, stamp.RollOf(d, sets, c.cfg.IsNewSet), d.Labels[machinev1alpha1.LabelSlot], ""
	}
	set, known := c.cfg.View.Sets.Get(key)
	if !known || metav1.GetControllerOfNoCopy(set) != nil {
		return nil, roll, "", fmt.Sprintf("spec.machineRef must name a MachineSet that exists and has no MachineDeployment, got %s; "+
			"of one that has, name the MachineDeployment.", key)
	}
	return []*machinev1alpha1.MachineSet{set}, roll, set.Labels[machinev1alpha1.LabelSlot], ""
}
