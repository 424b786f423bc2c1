package watch

import (
	"encoding/json"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// zonesOfSpecs are the fields of provider specs that name the zone of VMs, at the clouds that have
// one there.
func zonesOfSpecs() []string { return []string{"zone", "availabilityZone", "zoneID"} }

// classWithZone keeps of a class what slimClass does. Without a zone in its template, which only
// classes for the autoscaler need, it has the one that the provider spec names: the page does not
// read Nodes, whose labels have it.
func classWithZone(m *v1alpha1.MachineClass) *v1alpha1.MachineClass {
	c := slimClass(m)
	if c.NodeTemplate != nil && c.NodeTemplate.Zone != "" {
		return c
	}
	if zone := zoneOfSpec(m.ProviderSpec.Raw); zone != "" {
		c.NodeTemplate = &v1alpha1.NodeTemplate{Zone: zone}
	}
	return c
}

// zoneOfSpec returns the zone that a provider spec names; "" if it names none.
func zoneOfSpec(raw []byte) string {
	var spec map[string]json.RawMessage
	if json.Unmarshal(raw, &spec) != nil {
		return ""
	}
	for _, field := range zonesOfSpecs() {
		var zone string
		// A longer text than a label has is no zone.
		if text := spec[field]; len(text) < mostText && json.Unmarshal(text, &zone) == nil && zone != "" {
			return zone
		}
	}
	return ""
}
