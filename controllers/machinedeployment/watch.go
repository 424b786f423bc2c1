package machinedeployment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/family"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objects"
)

// watch adds the event handlers.
func (c *Controller) watch() (err error) {
	c.children, err = family.Follow(c.cfg.View.Sets, Name, family.Parents{
		Enqueue: c.runner.Enqueue, Selectors: c.selectors, Gone: c.sets.Forget,
	})
	c.cfg.View.Deployments.OnChange(c.changed)
	return err
}

// selectors returns the selectors of all deployments of a namespace.
func (c *Controller) selectors(namespace string) map[string]*metav1.LabelSelector {
	selectors := map[string]*metav1.LabelSelector{}
	for _, d := range c.cfg.View.Deployments.In(namespace) {
		selectors[d.Name] = d.Spec.Selector
	}
	return selectors
}

// changed has a deployment looked at, or drops what is remembered of one that is gone.
func (c *Controller) changed(before, after *v1alpha1.MachineDeployment) {
	if after != nil {
		c.runner.Enqueue(objects.Key(after))
		return
	}
	c.deployments.Forget(before.UID)
	c.looked.Delete(before.UID)
	c.pace.Forget(before.UID)
}
