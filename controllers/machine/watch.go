package machine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption/recorded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// Indexes of the machines.
const (
	indexByClass = "machine-class" // namespace/name of the class
	indexByNode  = "machine-node"  // name of the Node
)

// watch adds the indexes and the event handlers. Errors: an index that exists.
func (c *Controller) watch() error {
	machines := c.cfg.View.Machines
	err1 := machines.AddIndex(indexByClass, func(m *v1alpha1.Machine) []string { return []string{classKey(m).String()} })
	err2 := machines.AddIndex(indexByNode, func(m *v1alpha1.Machine) []string { return []string{lifecycle.NodeName(m)} })
	machines.OnChange(c.changed)
	recorded.OnChange(c.cfg.View, c.runner.Enqueue)
	c.cfg.View.Sets.OnChange(c.setChanged)
	c.cfg.View.Classes.OnChange(c.classChanged)
	c.cfg.Targets.OnNodeChange(c.nodeChanged)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("machine controller: %w", err)
	}
	return nil
}

// changed enqueues a machine, or drops what is remembered of one that is gone. A version that a
// pass has written begins none, unless the machine is found by its Node from then on: what has
// happened to the Node until then has found no machine.
func (c *Controller) changed(before, after *v1alpha1.Machine) {
	switch {
	case after == nil:
		c.tokens.noteGone(before)
		c.forget(before)
		c.runner.Drop(objectcache.Key(before))
	case before == nil || lifecycle.NodeName(before) != lifecycle.NodeName(after):
		c.runner.Enqueue(objectcache.Key(after))
	default:
		c.runner.EnqueueUnless(objectcache.Key(after), func() bool { return c.machines.latest.IsOwn(after) })
	}
}

// classChanged enqueues the machines of a class that is new, has a new generation, or allows fields
// to be ignored: they may have waited for it.
func (c *Controller) classChanged(before, after *v1alpha1.MachineClass) {
	const allow = v1alpha1.AnnotationAllowUnknownFields
	if after == nil || before != nil && before.Generation == after.Generation && before.Annotations[allow] == after.Annotations[allow] {
		return
	}
	for _, m := range c.cfg.View.Machines.By(indexByClass, objectcache.Key(after).String()) {
		c.memory.change(m.UID, func(is *remembered) { is.refused = refusal{} })
		c.runner.Enqueue(objectcache.Key(m))
	}
}

// enqueueOnNode enqueues the machines of a target cluster that name a Node, unless known reports
// that their passes have taken into account what has happened to the Node. No pass has anything to
// do for a machine that has ended, and the pass that ends one deletes its Node right before.
func (c *Controller) enqueueOnNode(of *target.Cluster, node string, known func() bool) {
	for _, m := range c.cfg.View.Machines.By(indexByNode, node) {
		if key := objectcache.Key(m); of.Serves(c.cfg.Targets, m.Namespace) {
			c.runner.EnqueueUnless(key, func() bool { return known() || c.machines.hasEnded(key) })
		}
	}
}

// unknown is for an event of a Node that no pass has taken into account.
func unknown() bool { return false }

// ServerChanged enqueues machines of a target cluster, all with nil, whose API server is back, over
// 30 s: most have no other reason for a pass after an outage.
func (c *Controller) ServerChanged(of *target.Cluster) {
	for _, m := range c.cfg.View.Machines.All() {
		cluster, err := c.cfg.Targets.For(m.Namespace)
		if err != nil || of != nil && cluster != of {
			continue
		}
		if !c.cfg.Servers.Under(cluster).Away {
			c.runner.EnqueueAfter(objectcache.Key(m), lifecycle.Spread(m.UID))
		}
	}
}

// TargetChanged enqueues the machines of a namespace whose target cluster is available, or not any
// more.
func (c *Controller) TargetChanged(namespace string) {
	for _, m := range c.cfg.View.Machines.In(namespace) {
		c.runner.Enqueue(objectcache.Key(m))
	}
}

// NodeAppeared enqueues the machine to which a Node without a valid slot label belongs by its name.
func (c *Controller) NodeAppeared(of *target.Cluster, name string, uid types.UID) {
	if claim := c.nodes.claims.of(of.Key(name)); claim.node != nil && claim.node.UID == uid {
		return // the Node was claimed after the event
	}
	c.nodes.claims.forget(of.Key(name))
	c.enqueueOnNode(of, name, unknown)
}

// nodeChanged enqueues the machine of a Node when a change can alter the decisions on the machine
// or its drain.
func (c *Controller) nodeChanged(of *target.Cluster, before, after *corev1.Node) {
	switch {
	case after == nil:
		of.Written.Forget(before.UID)
		of.ByPasses.Forget(before.UID)
		c.nodes.writes.forget(writesOf{of.Name, before.UID})
		c.nodes.claims.forget(of.Key(before.Name))
		c.enqueueOnNode(of, before.Name, unknown)
	case before == nil || concernsMachine(before, after) || concernsDrain(before, after):
		c.enqueueOnNode(of, after.Name, func() bool { return of.ByPasses.Shown(after) })
	}
}

// concernsMachine reports whether a change of a Node can alter the decisions on its machine. It
// ignores what changes on each Node all the time, above all heartbeats: otherwise each of them
// would cause a pass.
func concernsMachine(before, after *corev1.Node) bool {
	if before.Spec.ProviderID != after.Spec.ProviderID ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		len(before.Finalizers) != len(after.Finalizers) ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
		!apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		!apiequality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
		len(before.Status.Conditions) != len(after.Status.Conditions) {
		return true
	}
	for i, was := range before.Status.Conditions {
		is := after.Status.Conditions[i]
		if was.Type != is.Type || was.Status != is.Status || was.Reason != is.Reason {
			return true
		}
	}
	return false
}

// concernsDrain reports whether the cordon or the attached volumes have changed of a Node that is
// terminating or selected for an update in place. On other Nodes volumes are attached all the time,
// and each would cause a pass.
func concernsDrain(before, after *corev1.Node) bool {
	return (machinefacts.IsTerminating(after) || machinefacts.InPlaceStage(after) == v1alpha1.NodeReasonSelectedForUpdate) &&
		(before.Spec.Unschedulable != after.Spec.Unschedulable || !slices.Equal(before.Status.VolumesAttached, after.Status.VolumesAttached))
}

// setChanged enqueues the machines of a set when what their Nodes must carry has changed. While the
// cache does not show a set, its rollout may end: its machines are enqueued regardless of what a
// set that appears says.
func (c *Controller) setChanged(before, after *v1alpha1.MachineSet) {
	if after == nil || before != nil && nodesync.RolloutOf(before) == nodesync.RolloutOf(after) {
		return
	}
	for _, m := range c.cfg.View.Machines.Under(after) {
		c.runner.Enqueue(objectcache.Key(m))
	}
}
