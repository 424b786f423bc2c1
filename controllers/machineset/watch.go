package machineset

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption/recorded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// watch adds the event handlers.
func (c *Controller) watch() {
	c.children = ownerref.Follow(c.cfg.View.Machines.Objects, ownerref.Parents{
		Enqueue: c.runner.EnqueueSoon, Selectors: c.selectors, Gone: c.machines.Forget,
	})
	c.cfg.View.Sets.OnChange(c.changed)
	c.cfg.View.Deployments.OnChange(c.deploymentChanged)
	c.cfg.View.Classes.OnChange(c.classChanged)
	recorded.OnChange(c.cfg.View, c.allowed)
	ownerref.OnUndecodable(c.cfg.View.Machines.Undecodable, c.runner.Enqueue)
}

// allowed enqueues the set of a machine that has got a disruption: the machine may have failed
// already.
func (c *Controller) allowed(machine types.NamespacedName) {
	if m, known := c.cfg.View.Machines.Get(machine); known {
		if set := metav1.GetControllerOfNoCopy(m); set != nil {
			c.runner.Enqueue(types.NamespacedName{Namespace: m.Namespace, Name: set.Name})
		}
	}
}

// HoldChanged enqueues the sets of a namespace, with "" all sets: their machines may be deleted
// now, or not any more.
func (c *Controller) HoldChanged(namespace string) {
	sets := c.cfg.View.Sets.All()
	if namespace != "" {
		sets = c.cfg.View.Sets.In(namespace)
	}
	for _, set := range sets {
		c.runner.Enqueue(objectcache.Key(set))
	}
}

// TargetChanged enqueues the sets without a controller of a namespace whose target cluster is
// available, or not any more.
func (c *Controller) TargetChanged(namespace string) {
	for _, set := range c.cfg.View.Sets.In(namespace) {
		if metav1.GetControllerOfNoCopy(set) == nil {
			c.runner.Enqueue(objectcache.Key(set))
		}
	}
}

// selectors returns the selectors of all sets of a namespace.
func (c *Controller) selectors(namespace string) map[string]*metav1.LabelSelector {
	selectors := map[string]*metav1.LabelSelector{}
	for _, set := range c.cfg.View.Sets.In(namespace) {
		selectors[set.Name] = set.Spec.Selector
	}
	return selectors
}

// changed enqueues a set, or drops the state of one that was deleted. Without a new generation it
// is mostly what this controller has written: its status, and that intents are completed.
func (c *Controller) changed(before, after *v1alpha1.MachineSet) {
	switch {
	case after != nil && before != nil && before.Generation == after.Generation:
		c.runner.EnqueueSoon(objectcache.Key(after))
		return
	case after != nil:
		c.runner.Enqueue(objectcache.Key(after))
		return
	}
	c.forget(before.UID)
}

// forget drops the state of a set.
func (c *Controller) forget(set types.UID) {
	c.sets.Forget(set)
	c.pace.Forget(set)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.done, set)
}

// forgetIfGone forgets a set at the end of a decision about it, if the cache does not show it any
// more: the decision may have stored state after the event that the set is gone, and no later event
// would drop it.
func (c *Controller) forgetIfGone(set *v1alpha1.MachineSet) {
	if !c.cfg.View.Sets.Shows(set) {
		c.forget(set.UID)
	}
}

// countsMinReady reports whether minReadySeconds applies to a set.
func (c *Controller) countsMinReady(set *v1alpha1.MachineSet) bool {
	if root, known := ownerref.RootOfSet(c.cfg.View, set); known {
		return machinefacts.CountsMinReady(root, c.cfg.CountMinReady)
	}
	return c.cfg.CountMinReady
}

// deploymentChanged enqueues the sets of a deployment when its annotation about minReadySeconds has
// changed.
func (c *Controller) deploymentChanged(before, after *v1alpha1.MachineDeployment) {
	if after == nil || minReadyAnnotation(before) == minReadyAnnotation(after) {
		return
	}
	for _, set := range c.cfg.View.Sets.In(after.Namespace) {
		if metav1.IsControlledBy(set, after) {
			c.runner.Enqueue(objectcache.Key(set))
		}
	}
}

func minReadyAnnotation(d *v1alpha1.MachineDeployment) string {
	if d == nil {
		return ""
	}
	return d.Annotations[v1alpha1.AnnotationCountMinReady]
}
