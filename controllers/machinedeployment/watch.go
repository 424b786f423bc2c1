package machinedeployment

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/family"
)

// watch adds the event handlers.
func (c *Controller) watch() (err error) {
	c.children, err = family.Follow[*v1alpha1.MachineSet](c.cfg.Informers.MachineSets().Informer(), Name, family.Parents{
		Enqueue: c.runner.Enqueue, Selectors: c.selectors, Gone: c.sets.Forget,
	})
	if err != nil {
		return err
	}
	_, err = c.cfg.Informers.MachineDeployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.forget,
	})
	if err != nil {
		return fmt.Errorf("machinedeployment controller: %w", err)
	}
	return nil
}

// selectors returns the selectors of all deployments of a namespace. A lister of a started informer does not fail.
func (c *Controller) selectors(namespace string) map[string]*metav1.LabelSelector {
	deployments, _ := c.cfg.Informers.MachineDeployments().Lister().MachineDeployments(namespace).List(labels.Everything())
	selectors := map[string]*metav1.LabelSelector{}
	for _, d := range deployments {
		selectors[d.Name] = d.Spec.Selector
	}
	return selectors
}

func (c *Controller) enqueue(obj any) {
	if d, ok := obj.(*v1alpha1.MachineDeployment); ok {
		c.runner.Enqueue(types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
	}
}

// forget drops what is remembered of a deployment that is gone.
func (c *Controller) forget(obj any) {
	if d, ok := family.Last[*v1alpha1.MachineDeployment](obj); ok {
		c.deployments.Forget(d.UID)
		c.pace.Forget(d.UID)
	}
}
