package machine

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/family"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// Indexes of the Machines' informer.
const (
	indexByClass = "machine-class" // namespace/name of the class
	indexByNode  = "machine-node"  // name of the Node
)

// watch adds the indexes and the event handlers.
func (c *Controller) watch() error {
	machines := c.cfg.Informers.Machines().Informer()
	c.byKey = machines.GetIndexer()
	errs := []error{machines.AddIndexers(cache.Indexers{
		indexByClass: func(obj any) ([]string, error) {
			if m, ok := obj.(*v1alpha1.Machine); ok {
				return []string{m.Namespace + "/" + m.Spec.Class.Name}, nil
			}
			return nil, nil
		},
		indexByNode: func(obj any) ([]string, error) {
			if m, ok := obj.(*v1alpha1.Machine); ok && lifecycle.NodeName(m) != "" {
				return []string{lifecycle.NodeName(m)}, nil
			}
			return nil, nil
		},
	})}
	_, err := machines.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.enqueue(obj) },
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.forget,
	})
	errs = append(errs, err)
	_, err = c.cfg.Informers.MachineClasses().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.enqueueUsers(obj) },
		UpdateFunc: func(before, after any) {
			old, ok := before.(*v1alpha1.MachineClass)
			class, ok2 := after.(*v1alpha1.MachineClass)
			if ok && ok2 && old.Generation != class.Generation {
				c.enqueueUsers(class)
			}
		},
	})
	errs = append(errs, err)
	cluster, err := c.cfg.Targets.For("")
	if err == nil {
		err = cluster.OnNode(c.nodeChanged)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("machine controller: %w", err)
	}
	return nil
}

func (c *Controller) enqueue(obj any) {
	if m, ok := obj.(*v1alpha1.Machine); ok {
		c.runner.Enqueue(types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
	}
}

// forget drops what is remembered of a machine that is gone.
func (c *Controller) forget(obj any) {
	m, ok := family.Last[*v1alpha1.Machine](obj)
	if !ok {
		return
	}
	c.machines.Forget(m.UID)
	c.tokens.Delete(m.UID)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attempts, m.UID)
}

// enqueueUsers has the machines of a class looked at: they may have waited for it.
func (c *Controller) enqueueUsers(obj any) {
	class, ok := obj.(*v1alpha1.MachineClass)
	if !ok {
		return
	}
	c.enqueueIndexed(indexByClass, class.Namespace+"/"+class.Name)
}

func (c *Controller) enqueueIndexed(index, value string) {
	users, err := c.byKey.ByIndex(index, value)
	if err != nil {
		return // the index was added by watch, and cannot be missing
	}
	for _, m := range users {
		c.enqueue(m)
	}
}

// nodeChanged has the machine of a Node looked at when anything changed that it is judged by.
func (c *Controller) nodeChanged(before, after *corev1.Node) {
	switch {
	case after == nil:
		c.nodes.Forget(before.UID)
		c.enqueueIndexed(indexByNode, before.Name)
	case before == nil || concernsMachine(before, after):
		c.enqueueIndexed(indexByNode, after.Name)
	}
}

// concernsMachine leaves out what every Node does all the time, above all heartbeats.
func concernsMachine(before, after *corev1.Node) bool {
	if before.Spec.ProviderID != after.Spec.ProviderID ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		len(before.Finalizers) != len(after.Finalizers) ||
		before.Labels[v1alpha1.LabelMachineName] != after.Labels[v1alpha1.LabelMachineName] ||
		lifecycle.AwaitsComponents(before) != lifecycle.AwaitsComponents(after) ||
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
