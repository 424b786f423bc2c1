package remediation

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// watch adds the event handlers.
func (c *Controller) watch() {
	c.deployments.watch(func(d *v1alpha1.MachineDeployment) { c.enqueueRootOf(d, true) })
	c.sets.watch(func(set *v1alpha1.MachineSet) { c.enqueueRootOf(ownerref.RootOfSet(c.cfg.View, set)) })
	c.cfg.View.Machines.OnChange(c.machineChanged)
	ownerref.OnUndecodable(c.cfg.View.Machines.Undecodable, func(parent types.NamespacedName) {
		if set, known := c.cfg.View.Sets.Get(parent); known {
			c.enqueueRootOf(ownerref.RootOfSet(c.cfg.View, set))
		}
	})
	c.cfg.Targets.OnNodeChange(func(_ *target.Cluster, before, after *corev1.Node) {
		if placeOf(before) != placeOf(after) {
			c.breakers.recount()
		}
	})
}

// place is the part of a Node that counts depend on.
type place struct {
	zone, provider string
	machine        v1alpha1.MachineRef
}

func placeOf(node *corev1.Node) (is place) {
	if node == nil {
		return place{}
	}
	is.zone, is.provider = node.Labels[corev1.LabelTopologyZone], node.Spec.ProviderID
	is.machine, _ = v1alpha1.MachineOf(node)
	return is
}

// machineChanged requests a count and enqueues the machine's root, if the part of the machine
// changed that they depend on.
func (c *Controller) machineChanged(before, after *v1alpha1.Machine) {
	if before != nil && after != nil && concernOf(before) == concernOf(after) {
		return
	}
	c.breakers.recount()
	for _, m := range []*v1alpha1.Machine{before, after} {
		if m != nil {
			c.enqueueRootOf(ownerref.RootOf(c.cfg.View, m))
		}
	}
}

// concern is the part of a machine that decisions depend on. Of a machine that is being deleted it
// is nothing else but its set.
type concern struct {
	set         types.UID
	slot, node  string
	phase       v1alpha1.MachinePhase
	operation   v1alpha1.MachineOperationType
	since, kept int64
	requested   string // requested preservation
	generation  int64
	deleted     bool
}

func concernOf(m *v1alpha1.Machine) (is concern) {
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		is.set = owner.UID
	}
	if is.deleted = m.DeletionTimestamp != nil; is.deleted {
		return is
	}
	s := m.Status.CurrentStatus
	is.slot, is.node, is.phase, is.operation = m.Labels[v1alpha1.LabelSlot], m.Labels[v1alpha1.LabelNode], s.Phase, m.Status.LastOperation.Type
	is.since, is.requested, is.generation = s.LastUpdateTime.Unix(), machinefacts.PreserveValue(m), m.Generation
	if s.PreserveExpiryTime != nil {
		is.kept = s.PreserveExpiryTime.Unix()
	}
	return is
}

// enqueueRootOf enqueues the root of a machine, if there is one.
func (c *Controller) enqueueRootOf(root metav1.Object, ok bool) {
	if !ok {
		return
	}
	switch root.(type) {
	case *v1alpha1.MachineDeployment:
		c.deployments.runner.EnqueueSoon(objectcache.Key(root))
	case *v1alpha1.MachineSet:
		c.sets.runner.EnqueueSoon(objectcache.Key(root))
	}
}
