package machine

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// rollout returns what the machine's Node must carry while machines are replaced, as derived from its set; nil when the cache does not
// show the set.
func (c *Controller) rollout(m *v1alpha1.Machine) *nodesync.Rollout {
	set, ok := ownerref.SetOf(c.cfg.View, m)
	if !ok {
		return nil
	}
	carried := nodesync.RolloutOf(set)
	return &carried
}

// omitsComponentsTaint reports whether the machine's Node does not get the taint critical-components-not-ready after it was updated in
// place. The fleet's setting applies to a machine without a root, or with one that the cache does not show.
func (c *Controller) omitsComponentsTaint(m *v1alpha1.Machine) bool {
	if root, ok := ownerref.RootOf(c.cfg.View, m); ok {
		return ownerref.OmitsComponentsTaint(root, c.cfg.NoComponentsTaint)
	}
	return c.cfg.NoComponentsTaint
}

// setChanged enqueues the machines of a set when what their Nodes must carry has changed. While the cache does not show a set, its
// rollout may end: its machines are enqueued whatever a set that appears says.
func (c *Controller) setChanged(before, after *v1alpha1.MachineSet) {
	if after == nil || before != nil && nodesync.RolloutOf(before) == nodesync.RolloutOf(after) {
		return
	}
	for _, m := range c.cfg.View.Machines.Under(after) {
		c.runner.Enqueue(objectcache.Key(m))
	}
}
