package machinedeployment

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Indexes of the MachineSets' informer.
const (
	indexByController = "machineset-controller-uid" // UID of the controlling owner
	indexOrphans      = "machineset-orphans"        // namespace, of those without a controller
)

// watch adds the indexes and the event handlers.
func (c *Controller) watch() error {
	sets := c.cfg.Informers.MachineSets().Informer()
	errs := []error{sets.AddIndexers(cache.Indexers{
		indexByController: func(obj any) ([]string, error) {
			if owner := controllerOf(obj); owner != nil {
				return []string{string(owner.UID)}, nil
			}
			return nil, nil
		},
		indexOrphans: func(obj any) ([]string, error) {
			if set, ok := obj.(*v1alpha1.MachineSet); ok && controllerOf(set) == nil {
				return []string{set.Namespace}, nil
			}
			return nil, nil
		},
	})}
	_, err := sets.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.setChanged,
		UpdateFunc: c.setUpdated,
		DeleteFunc: c.setGone,
	})
	errs = append(errs, err)
	_, err = c.cfg.Informers.MachineDeployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.forget,
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("machinedeployment controller: %w", err)
	}
	return nil
}

func controllerOf(obj any) *metav1.OwnerReference {
	if set, ok := obj.(*v1alpha1.MachineSet); ok {
		return metav1.GetControllerOfNoCopy(set)
	}
	return nil
}

func (c *Controller) enqueue(obj any) {
	if d, ok := obj.(*v1alpha1.MachineDeployment); ok {
		c.runner.Enqueue(types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
	}
}

func (c *Controller) forget(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if d, ok := obj.(*v1alpha1.MachineDeployment); ok {
		c.deployments.Forget(d.UID)
		c.pace.Forget(d.UID)
	}
}

// setChanged has the set's deployment looked at, or every deployment that could adopt it.
func (c *Controller) setChanged(obj any) {
	set, ok := obj.(*v1alpha1.MachineSet)
	if !ok {
		return
	}
	if owner := controllerOf(set); owner != nil {
		c.runner.Enqueue(types.NamespacedName{Namespace: set.Namespace, Name: owner.Name})
		return
	}
	deployments, err := c.cfg.Informers.MachineDeployments().Lister().MachineDeployments(set.Namespace).List(labels.Everything())
	if err != nil {
		return // a lister of a started informer does not fail
	}
	for _, d := range deployments {
		if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil && selector.Matches(labels.Set(set.Labels)) {
			c.enqueue(d)
		}
	}
}

// setUpdated looks at the old owner, too, when the owner has changed.
func (c *Controller) setUpdated(before, after any) {
	was, is := controllerOf(before), controllerOf(after)
	if was != nil && (is == nil || is.UID != was.UID) {
		c.setChanged(before)
	}
	c.setChanged(after)
}

func (c *Controller) setGone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if set, ok := obj.(*v1alpha1.MachineSet); ok {
		c.sets.Forget(set.UID)
	}
	c.setChanged(obj)
}
