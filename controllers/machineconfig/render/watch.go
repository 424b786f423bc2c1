package render

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
)

// watch registers the handlers.
func (c *Controller) watch() {
	c.cfg.Cache.OnPool(c.poolChanged)
	c.cfg.Cache.OnMachineConfig(c.configChanged)
	c.cfg.Cache.OnControllerConfig(c.controllerConfigChanged)
	c.cfg.Cache.OnRendered(c.renderedChanged)
}

func (c *Controller) poolChanged(before, after *v1alpha1.MachineConfigPool) {
	switch {
	case after == nil:
		c.forget(before.Name)
		return
	case before == nil && after.Status.CurrentMachineConfig == "", before != nil && before.Generation != after.Generation:
		c.changed(after.Name)
	case before != nil && !concerns(before, after):
		return
	}
	c.Enqueue(after.Name)
}

// forget drops what is remembered of a pool.
func (c *Controller) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.changes, pool)
	delete(c.swept, pool)
	delete(c.others, pool)
}

// concerns reports whether a pool has changed in what this controller reads or writes, apart from
// its spec.
func concerns(before, after *v1alpha1.MachineConfigPool) bool {
	condition := func(p *v1alpha1.MachineConfigPool) *metav1.Condition {
		return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolRenderDegraded)
	}
	return !before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!slices.Equal(before.Finalizers, after.Finalizers) ||
		before.Status.CurrentMachineConfig != after.Status.CurrentMachineConfig ||
		before.Status.CompletedMachineConfig != after.Status.CompletedMachineConfig ||
		!reflect.DeepEqual(condition(before), condition(after))
}

// configChanged enqueues the pools that a change of a MachineConfig concerns.
func (c *Controller) configChanged(before, after *v1alpha1.MachineConfig) {
	if before != nil && after != nil && isSame(before, after) {
		return
	}
	for _, pool := range merge.Affected(c.cfg.Cache.Pools(), aboutOf(before), aboutOf(after)) {
		c.changed(pool)
		c.Enqueue(pool)
	}
}

func aboutOf(config *v1alpha1.MachineConfig) *metav1.ObjectMeta {
	if config == nil {
		return nil
	}
	return &config.ObjectMeta
}

// isSame reports whether two versions of a MachineConfig are selected by the same pools, and result
// in the same.
func isSame(before, after *v1alpha1.MachineConfig) bool {
	return equality.Semantic.DeepEqual(before.Labels, after.Labels) && equality.Semantic.DeepEqual(before.Annotations, after.Annotations) &&
		equality.Semantic.DeepEqual(before.Spec, after.Spec) && before.DeletionTimestamp.Equal(after.DeletionTimestamp)
}

// controllerConfigChanged enqueues all pools when the image of the operating system is another one.
func (c *Controller) controllerConfigChanged(_, after *v1alpha1.ControllerConfig) {
	image := ""
	if after != nil {
		image = after.Spec.OSImageURL
	}
	c.mu.Lock()
	isSame := image == c.image
	c.image = image
	c.mu.Unlock()
	if isSame {
		return
	}
	for _, pool := range c.cfg.Cache.Pools() {
		c.changed(pool.Name)
		c.Enqueue(pool.Name)
	}
}

// renderedChanged enqueues the pool of a RenderedMachineConfig that is being deleted, or was: it
// may be needed again.
func (c *Controller) renderedChanged(before, after *metav1.PartialObjectMetadata) {
	switch {
	case after == nil:
		c.mu.Lock()
		delete(c.verified, before.Name)
		c.mu.Unlock()
		c.Enqueue(before.Labels[v1alpha1.LabelPool])
	case after.DeletionTimestamp == nil:
	case before != nil && before.DeletionTimestamp == nil:
		c.due(after.Labels[v1alpha1.LabelPool])
	default:
		c.Enqueue(after.Labels[v1alpha1.LabelPool])
	}
}
