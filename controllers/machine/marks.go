package machine

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// marks are what the machine's Node is to carry while machines are replaced, as its set says; nil when that is not seen.
func (c *Controller) marks(m *v1alpha1.Machine) *nodesync.Marks {
	set, ok := ownerref.SetOf(c.cfg.View, m)
	if !ok {
		return nil
	}
	marks := nodesync.MarksOf(set)
	return &marks
}

// omitsComponentsTaint reports whether the machine's Node goes without the taint critical-components-not-ready when it was updated
// in place. A machine without a root, or whose root is not seen, has the fleet's setting.
func (c *Controller) omitsComponentsTaint(m *v1alpha1.Machine) bool {
	if root, ok := ownerref.RootOf(c.cfg.View, m); ok {
		return ownerref.OmitsComponentsTaint(root, c.cfg.NoComponentsTaint)
	}
	return c.cfg.NoComponentsTaint
}

// setChanged has the machines of a set looked at whose Nodes are to carry something else than before.
func (c *Controller) setChanged(before, after *v1alpha1.MachineSet) {
	var was, is nodesync.Marks
	if before != nil {
		was = nodesync.MarksOf(before)
	}
	if after != nil {
		is = nodesync.MarksOf(after)
	}
	if was == is || after == nil {
		return
	}
	for _, m := range c.cfg.View.Machines.Under(after) {
		c.runner.Enqueue(objectcache.Key(m))
	}
}
