package machinedeployment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// watch adds the index and the event handlers.
func (c *Controller) watch() {
	c.children = ownerref.Follow(c.cfg.View.Sets.Objects, ownerref.Parents{
		Enqueue: c.runner.EnqueueSoon, Selectors: c.selectors, Gone: c.sets.Forget,
	})
	ownerref.OnUndecodable(c.cfg.View.Sets.Undecodable, c.runner.Enqueue)
	ownerref.OnUndecodable(c.cfg.View.Machines.Undecodable, func(parent types.NamespacedName) {
		if set, known := c.cfg.View.Sets.Get(parent); known {
			if root, known := ownerref.RootOfSet(c.cfg.View, set); known {
				c.runner.Enqueue(objectcache.Key(root))
			}
		}
	})
	c.cfg.View.Deployments.OnChange(c.changed)
	c.cfg.View.Machines.OnChange(c.machineChanged)
	c.cfg.Targets.OnNodeChange(c.nodeChanged)
}

// TargetChanged enqueues the deployments of a namespace whose target cluster is available, or not
// any more.
func (c *Controller) TargetChanged(namespace string) {
	for _, d := range c.cfg.View.Deployments.In(namespace) {
		c.runner.Enqueue(objectcache.Key(d))
	}
}

// machineChanged enqueues the deployment of a machine when the machine counts in another way than
// before.
func (c *Controller) machineChanged(before, after *v1alpha1.Machine) {
	if before != nil && after != nil && countsAs(before) == countsAs(after) {
		return
	}
	if after == nil {
		c.machines.Forget(before.UID)
	}
	for _, m := range []*v1alpha1.Machine{before, after} {
		if m == nil {
			continue
		}
		if root, ok := ownerref.RootOf(c.cfg.View, m); ok {
			c.runner.EnqueueSoon(objectcache.Key(root)) // a set that is a root is no deployment, and is not found
		}
	}
}

// standing has the fields of a machine that decisions on a rollout use. Of a machine that is being
// deleted that is nothing else but its set.
type standing struct {
	set       types.UID
	preserved int64 // until when; 0 when it is not preserved
	phase     v1alpha1.MachinePhase
	operation v1alpha1.MachineOperationType
	state     v1alpha1.MachineState
	code      string
	deleted   bool
	node      string
	updated   string
}

func countsAs(m *v1alpha1.Machine) (s standing) {
	if set := metav1.GetControllerOfNoCopy(m); set != nil {
		s.set = set.UID
	}
	if s.deleted = m.DeletionTimestamp != nil; s.deleted {
		return s
	}
	s.phase, s.node, s.updated = m.Status.CurrentStatus.Phase, m.Labels[v1alpha1.LabelNode], m.Labels[v1alpha1.LabelUpdateResult]
	s.operation, s.state, s.code = m.Status.LastOperation.Type, m.Status.LastOperation.State, m.Status.LastOperation.ErrorCode
	if expiry := m.Status.CurrentStatus.PreserveExpiryTime; expiry != nil {
		s.preserved = expiry.Unix()
	}
	return s
}

// selectors returns the selectors of all deployments of a namespace.
func (c *Controller) selectors(namespace string) map[string]*metav1.LabelSelector {
	selectors := map[string]*metav1.LabelSelector{}
	for _, d := range c.cfg.View.Deployments.In(namespace) {
		selectors[d.Name] = d.Spec.Selector
	}
	return selectors
}

// changed enqueues a deployment, or drops the state of one that was deleted. Without a new
// generation it is mostly the status that this controller has written.
func (c *Controller) changed(before, after *v1alpha1.MachineDeployment) {
	switch {
	case after != nil && before != nil && before.Generation == after.Generation:
		c.runner.EnqueueSoon(objectcache.Key(after))
		return
	case after != nil:
		c.runner.Enqueue(objectcache.Key(after))
		return
	}
	c.forget(before.UID)
	c.runner.Drop(objectcache.Key(before))
}

// forget drops the state of a deployment.
func (c *Controller) forget(deployment types.UID) {
	c.deployments.Forget(deployment)
	c.orphansListed.Delete(deployment)
	c.unseen.Delete(deployment)
	c.rollouts.Delete(deployment)
	c.pace.Forget(deployment)
}

// forgetIfGone forgets a deployment at the end of its pass, if the cache does not show it any more:
// the pass may have stored state after the event that the deployment is gone, and no later event
// would drop it.
func (c *Controller) forgetIfGone(d *v1alpha1.MachineDeployment) {
	if !c.cfg.View.Deployments.Shows(d) {
		c.forget(d.UID)
	}
}
