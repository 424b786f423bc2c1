package kubeletconfig

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/fold"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
)

// watch registers the handlers.
func (c *Controller) watch() {
	c.cfg.Cache.OnPool(c.poolChanged)
	c.cfg.Cache.OnKubeletConfig(c.kubeletChanged)
	c.cfg.Cache.OnMachineConfig(c.configChanged)
}

func (c *Controller) poolChanged(before, after *v1alpha1.MachineConfigPool) {
	if before != nil && after != nil && before.Generation == after.Generation && equality.Semantic.DeepEqual(before.Labels, after.Labels) {
		return // its status has changed
	}
	if after != nil {
		c.enqueuePool(after.Name)
	}
	c.enqueueAll()
}

// kubeletChanged enqueues a KubeletConfig, its pools before and after the change, and all other
// KubeletConfigs: they may override each other, and one that is invalid blocks the others of its
// pools.
func (c *Controller) kubeletChanged(before, after *v1alpha1.KubeletConfig) {
	if after == nil {
		c.kubelets.Forget(before.UID)
	}
	if before != nil && after != nil && before.Generation == after.Generation && before.DeletionTimestamp.Equal(after.DeletionTimestamp) {
		c.statuses.Enqueue(types.NamespacedName{Name: after.Name})
		return
	}
	for _, pool := range c.cfg.Cache.Pools() {
		for _, version := range []*v1alpha1.KubeletConfig{before, after} {
			if version != nil && isSelected(pool, version) {
				c.enqueuePool(pool.Name)
			}
		}
	}
	c.enqueueAll()
}

// isSelected reports whether a KubeletConfig selects a pool, also while it is being deleted: then
// the pool has to be folded without it.
func isSelected(pool *v1alpha1.MachineConfigPool, config *v1alpha1.KubeletConfig) bool {
	kept := *config
	kept.DeletionTimestamp = nil
	return len(fold.Select(pool, []*v1alpha1.KubeletConfig{&kept})) > 0
}

// configChanged enqueues the pools whose default or whose generated MachineConfig has changed, and
// the KubeletConfigs.
func (c *Controller) configChanged(before, after *v1alpha1.MachineConfig) {
	about := func(config *v1alpha1.MachineConfig) *metav1.ObjectMeta {
		if config == nil {
			return nil
		}
		return &config.ObjectMeta
	}
	for _, pool := range c.cfg.Cache.Pools() {
		for _, version := range []*v1alpha1.MachineConfig{before, after} {
			if version != nil && version.Name == fold.Name(pool.Name) {
				c.enqueuePool(pool.Name)
			}
		}
	}
	for _, pool := range merge.Affected(c.cfg.Cache.Pools(), about(before), about(after)) {
		c.enqueuePool(pool)
	}
	c.enqueueAll()
}

func (c *Controller) enqueuePool(name string) { c.pools.Enqueue(types.NamespacedName{Name: name}) }

func (c *Controller) enqueueAll() {
	for _, config := range c.cfg.Cache.KubeletConfigs() {
		c.statuses.Enqueue(types.NamespacedName{Name: config.Name})
	}
}
