package render

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// releaseAfter is the time for which changes that may end a wait are gathered for one list.
	releaseAfter = time.Second
	// releasePause is the least time between two lists that such changes cause for a pool.
	releasePause = 30 * time.Second
	// releaseEvery is the time between two lists while a pool waits and no change was seen: what names
	// its RenderedMachineConfigs may be in caches of other replicas only.
	releaseEvery = 10 * time.Minute
)

// sweep contains what is known of the lists of all that may name a RenderedMachineConfig of a pool.
type sweep struct {
	at    time.Time // of the last list
	waits bool      // the pool, or a RenderedMachineConfig of it, is being deleted
	isDue bool      // the result may be another one than at the last list
}

// setSweep changes what is known of a pool, and returns it.
func (c *Controller) setSweep(pool string, change func(s *sweep)) sweep {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.swept[pool]
	change(&s)
	c.swept[pool] = s
	return s
}

// due has the uses of a pool's RenderedMachineConfigs listed soon.
func (c *Controller) due(pool string) {
	s := c.setSweep(pool, func(s *sweep) { s.isDue = true })
	wait := max(s.at.Add(releasePause).Sub(c.cfg.Clock.Now()), releaseAfter)
	c.queue.EnqueueAfter(types.NamespacedName{Name: pool}, wait)
}

// waiting returns the pools that wait.
func (c *Controller) waiting() (pools []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pool, s := range c.swept {
		if s.waits {
			pools = append(pools, pool)
		}
	}
	return pools
}

// watchUses registers the handlers of what may name a RenderedMachineConfig, as far as the caches
// of this replica have it.
func (c *Controller) watchUses() {
	c.cfg.Nodes.OnChange(c.NodeChanged)
	template := func(annotations map[string]string) []string {
		return []string{annotations[v1alpha1.AnnotationMachineConfig]}
	}
	c.cfg.View.Machines.OnChange(onUse(c, func(m *machinev1alpha1.Machine) []string { return template(m.Annotations) }))
	c.cfg.View.Sets.OnChange(onUse(c, func(s *machinev1alpha1.MachineSet) []string { return template(s.Spec.Template.Annotations) }))
	c.cfg.View.Deployments.OnChange(onUse(c, func(d *machinev1alpha1.MachineDeployment) []string {
		return template(d.Spec.Template.Annotations)
	}))
	c.cfg.Cache.OnPool(onUse(c, func(p *v1alpha1.MachineConfigPool) []string {
		return []string{p.Status.CurrentMachineConfig, p.Status.CompletedMachineConfig}
	}))
	c.cfg.Cache.OnPool(c.countsChanged)
}

// NodeChanged is called with each change of a Node that this replica watches, for itself or for one
// of its pools.
func (c *Controller) NodeChanged(before, after *corev1.Node) {
	onUse(c, func(n *corev1.Node) []string {
		return []string{n.Annotations[c.cfg.Prefix.CurrentConfig()], n.Annotations[c.cfg.Prefix.DesiredConfig()]}
	})(before, after)
}

// onUse returns a handler that has the pools looked at whose RenderedMachineConfigs an object does
// not name any more, if they wait for that.
func onUse[T comparable](c *Controller, names func(T) []string) func(before, after T) {
	var none T
	return func(before, after T) {
		if before == none {
			return
		}
		pools := c.waiting()
		if len(pools) == 0 {
			return
		}
		ended := names(before)
		if after != none {
			named := names(after)
			ended = slices.DeleteFunc(ended, func(name string) bool { return slices.Contains(named, name) })
		}
		for _, pool := range pools {
			for _, about := range c.cfg.Cache.Rendered(pool) {
				if slices.Contains(ended, about.Name) {
					c.due(pool)
					break
				}
			}
		}
	}
}

// countsChanged has the pools looked at that wait, when Nodes of another pool have got its target,
// or it has lost some: they may have been theirs before, and be in caches of other replicas only.
func (c *Controller) countsChanged(before, after *v1alpha1.MachineConfigPool) {
	if before == nil || after == nil ||
		after.Status.UpdatedMachineCount <= before.Status.UpdatedMachineCount && after.Status.MachineCount >= before.Status.MachineCount {
		return
	}
	for _, pool := range c.waiting() {
		if pool != after.Name {
			c.due(pool)
		}
	}
}
