package watch

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// classWithZone keeps of a class what slimClass does, with the zone of its VMs as that of its
// template of Nodes: the page does not read Nodes, whose labels have it.
func classWithZone(m *v1alpha1.MachineClass) *v1alpha1.MachineClass {
	c := slimClass(m)
	if zone := view.ZoneOfClass(m); zone != "" {
		c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: zone}
	}
	return c
}
