package machineset

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Indexes of the Machines' informer.
const (
	indexByController = "machine-controller-uid" // UID of the controlling owner
	indexOrphans      = "machine-orphans"        // namespace, of those without a controller
)

// watch adds the indexes and the event handlers.
func (c *Controller) watch() error {
	machines := c.cfg.Informers.Machines().Informer()
	errs := []error{machines.AddIndexers(cache.Indexers{
		indexByController: func(obj any) ([]string, error) {
			if owner := controllerOf(obj); owner != nil {
				return []string{string(owner.UID)}, nil
			}
			return nil, nil
		},
		indexOrphans: func(obj any) ([]string, error) {
			if m, ok := obj.(*v1alpha1.Machine); ok && controllerOf(m) == nil {
				return []string{m.Namespace}, nil
			}
			return nil, nil
		},
	})}
	_, err := machines.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.machineChanged(obj) },
		UpdateFunc: func(before, after any) { c.machineUpdated(before, after) },
		DeleteFunc: func(obj any) { c.machineChanged(obj) },
	})
	errs = append(errs, err)
	_, err = c.cfg.Informers.MachineSets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.forget,
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("machineset controller: %w", err)
	}
	return nil
}

func controllerOf(obj any) *metav1.OwnerReference {
	if m, ok := obj.(*v1alpha1.Machine); ok {
		return metav1.GetControllerOfNoCopy(m)
	}
	return nil
}

func (c *Controller) enqueue(obj any) {
	if set, ok := obj.(*v1alpha1.MachineSet); ok {
		c.runner.Enqueue(types.NamespacedName{Namespace: set.Namespace, Name: set.Name})
	}
}

func (c *Controller) forget(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if set, ok := obj.(*v1alpha1.MachineSet); ok {
		c.sets.Forget(set.UID)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.done, set.UID)
		c.pace.Forget(set.UID)
	}
}

// machineChanged has the machine's set looked at, or every set that could adopt it.
func (c *Controller) machineChanged(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	m, ok := obj.(*v1alpha1.Machine)
	if !ok {
		return
	}
	if owner := controllerOf(m); owner != nil {
		c.runner.Enqueue(types.NamespacedName{Namespace: m.Namespace, Name: owner.Name})
		return
	}
	sets, err := c.cfg.Informers.MachineSets().Lister().MachineSets(m.Namespace).List(labels.Everything())
	if err != nil {
		return // a lister of a started informer does not fail
	}
	for _, set := range sets {
		if selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil && selector.Matches(labels.Set(m.Labels)) {
			c.enqueue(set)
		}
	}
}

// machineUpdated looks at the old owner, too, when the owner has changed.
func (c *Controller) machineUpdated(before, after any) {
	was, is := controllerOf(before), controllerOf(after)
	if was != nil && (is == nil || is.UID != was.UID) {
		c.machineChanged(before)
	}
	c.machineChanged(after)
}
