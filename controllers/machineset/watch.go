package machineset

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
	c.children, err = family.Follow[*v1alpha1.Machine](c.cfg.Informers.Machines().Informer(), Name, family.Parents{
		Enqueue: c.runner.Enqueue, Selectors: c.selectors, Gone: c.machines.Forget,
	})
	if err != nil {
		return err
	}
	_, err = c.cfg.Informers.MachineSets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.forget,
	})
	if err != nil {
		return fmt.Errorf("machineset controller: %w", err)
	}
	return nil
}

// selectors returns the selectors of all sets of a namespace. A lister of a started informer does not fail.
func (c *Controller) selectors(namespace string) map[string]*metav1.LabelSelector {
	sets, _ := c.cfg.Informers.MachineSets().Lister().MachineSets(namespace).List(labels.Everything())
	selectors := map[string]*metav1.LabelSelector{}
	for _, set := range sets {
		selectors[set.Name] = set.Spec.Selector
	}
	return selectors
}

func (c *Controller) enqueue(obj any) {
	if set, ok := obj.(*v1alpha1.MachineSet); ok {
		c.runner.Enqueue(types.NamespacedName{Namespace: set.Namespace, Name: set.Name})
	}
}

// forget drops what is remembered of a set that is gone.
func (c *Controller) forget(obj any) {
	set, ok := family.Last[*v1alpha1.MachineSet](obj)
	if !ok {
		return
	}
	c.sets.Forget(set.UID)
	c.pace.Forget(set.UID)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.done, set.UID)
}
