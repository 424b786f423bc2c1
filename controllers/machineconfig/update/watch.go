package update

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// watch registers the handlers.
func (c *Controller) watch() {
	c.cfg.Pools.OnPool(c.poolChanged)
	c.cfg.Cluster.Nodes.OnChange(c.cachedNodeChanged)
	c.cfg.View.Machines.OnChange(func(before, after *machinev1alpha1.Machine) {
		if !c.refers() {
			return
		}
		switch {
		case after == nil:
			c.enqueueFor(before)
		case before == nil, standing(before) != standing(after):
			c.enqueueFor(after)
		}
	})
	c.cfg.View.Sets.OnChange(func(before, after *machinev1alpha1.MachineSet) {
		switch {
		case after == nil:
			c.enqueueReferring(before.Namespace)
		case before == nil:
			c.enqueueReferring(after.Namespace)
		}
	})
	c.cfg.View.Deployments.OnChange(func(before, after *machinev1alpha1.MachineDeployment) {
		switch {
		case after == nil:
			c.enqueueReferring(before.Namespace)
		case before == nil, before.Generation != after.Generation:
			c.enqueueReferring(after.Namespace)
		}
	})
}

// cachedNodeChanged enqueues the pools that a Node in the cache of the cluster concerns: those that
// refer to its machine, and where that cache has all Nodes, those that select it.
func (c *Controller) cachedNodeChanged(before, after *corev1.Node) {
	node := after
	if after == nil {
		node = before
		c.forgetNode(before)
	}
	if !matters(before, after) {
		return
	}
	if c.cfg.Cluster.Name != "" {
		c.enqueueSelecting(before, after)
	}
	if !c.refers() {
		return
	}
	if ref, bound := machinev1alpha1.MachineOf(node); bound {
		if m, known := c.cfg.View.Machines.Get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}); known {
			c.enqueueFor(m)
		}
	}
}

// HoldChanged enqueues the pools of this replica: deletions may be held now, or not any more.
func (c *Controller) HoldChanged(string) { c.enqueueOwned() }

// ServerChanged enqueues the pools of this replica: an API server is away, or is there again.
func (c *Controller) ServerChanged() { c.enqueueOwned() }

func (c *Controller) enqueueOwned() {
	for _, pool := range c.cfg.Pools.Pools() {
		if c.cfg.Owns(pool) {
			c.enqueue(pool.Name)
		}
	}
}

// poolChanged enqueues a pool. A change of which Nodes a pool has may change which Nodes the others
// have.
func (c *Controller) poolChanged(before, after *v1alpha1.MachineConfigPool) {
	switch {
	case after == nil:
		c.pools.Forget(before.UID)
		c.pace.Forget(before.UID)
		c.leave(before.Name)
	case c.cfg.Owns(after):
		c.enqueue(after.Name)
	default:
		c.leave(after.Name)
	}
	if before == nil || after == nil || !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
		c.enqueueOwned()
	}
}

// enqueue has a pass over a pool follow soon.
func (c *Controller) enqueue(pool string) {
	c.runner.EnqueueAfter(types.NamespacedName{Name: pool}, gather)
}

// refers reports whether a pool refers to machines.
func (c *Controller) refers() bool {
	return slices.ContainsFunc(c.cfg.Pools.Pools(), func(p *v1alpha1.MachineConfigPool) bool { return p.Spec.MachineRef != nil })
}

// enqueueSelecting enqueues the pools that select a Node by labels, before its change or after it.
func (c *Controller) enqueueSelecting(versions ...*corev1.Node) {
	for _, pool := range c.cfg.Pools.Pools() {
		if pool.Spec.MachineRef != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
		if err == nil && slices.ContainsFunc(versions, func(node *corev1.Node) bool {
			return node != nil && selector.Matches(labels.Set(node.Labels))
		}) {
			c.enqueue(pool.Name)
		}
	}
}

// enqueueReferring enqueues the pools that refer to something in a namespace.
func (c *Controller) enqueueReferring(namespace string) {
	for _, pool := range c.cfg.Pools.Pools() {
		if ref := pool.Spec.MachineRef; ref != nil && ref.Namespace == namespace {
			c.enqueue(pool.Name)
		}
	}
}

// enqueueFor enqueues the pools that refer to the root of a machine.
func (c *Controller) enqueueFor(m *machinev1alpha1.Machine) {
	root, known := ownerref.RootOf(c.cfg.View, m)
	if !known {
		c.enqueueReferring(m.Namespace)
		return
	}
	for _, pool := range referring(c.cfg.Pools.Pools(), stamp.ReferenceTo(root)) {
		c.enqueue(pool)
	}
}

// stance contains what a pool needs of a machine.
type stance struct {
	node    string
	leaves  bool
	failed  bool
	version types.UID // of its set
}

func standing(m *machinev1alpha1.Machine) stance {
	s := stance{
		node:   m.Labels[machinev1alpha1.LabelNode],
		leaves: m.DeletionTimestamp != nil,
		failed: m.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed,
	}
	if set := metav1.GetControllerOfNoCopy(m); set != nil {
		s.version = set.UID
	}
	return s
}

// matters reports whether a change of a Node may change a decision. The heartbeats of kubelets do
// not.
func matters(before, after *corev1.Node) bool {
	if before == nil || after == nil {
		return true
	}
	return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!apiequality.Semantic.DeepEqual(before.Spec, after.Spec) || !maps.Equal(conditionsOf(before), conditionsOf(after))
}

// conditionsOf returns the conditions of a Node without their times.
func conditionsOf(node *corev1.Node) map[corev1.NodeConditionType]string {
	all := map[corev1.NodeConditionType]string{}
	for _, condition := range node.Status.Conditions {
		all[condition.Type] = string(condition.Status) + "/" + condition.Reason
	}
	return all
}

// nodeChanged handles the change of a Node that a pool selects.
func (c *Controller) nodeChanged(before, after *corev1.Node) {
	if after == nil {
		c.forgetNode(before)
	}
	if c.cfg.NodeChanged != nil {
		c.cfg.NodeChanged(before, after)
	}
}

// forgetNode drops what is remembered of a Node that a cache does not have any more.
func (c *Controller) forgetNode(node *corev1.Node) {
	c.nodes.Forget(node.UID)
	c.roots.forget(node.UID)
}

// leaveIfLost drops what is remembered for a pool at the end of its pass, if it is not this
// replica's any more: the pass may have remembered something since it was noticed.
func (c *Controller) leaveIfLost(name string) {
	if pool, known := c.cfg.Pools.Pool(name); !known || !c.cfg.Owns(pool) {
		c.leave(name)
	}
}

// leave stops watching for a pool that is not this replica's, and drops its drains: its owner
// continues them.
func (c *Controller) leave(pool string) {
	c.watches.drop(pool)
	for _, node := range c.drains.leave(pool) {
		c.cfg.Drains.Drop(c.ownerOf(node), aim)
	}
}
