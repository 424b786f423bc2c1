package view

import (
	"encoding/json"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// zonesOfSpecs are the fields of provider specs that name the zone of VMs, at the clouds that have
// one there.
func zonesOfSpecs() []string { return []string{"zone", "availabilityZone", "zoneID"} }

// longestZone is how many bytes the name of a zone has at most in a provider spec: a longer text
// than a label has is none.
const longestZone = 1024

// ZoneOfClass returns the zone of the VMs of a class: that of its template of Nodes, which only
// classes for the autoscaler need, or else the one that its provider spec names; "" if it names
// none.
func ZoneOfClass(class *v1alpha1.MachineClass) string {
	if class.NodeTemplate != nil && class.NodeTemplate.Zone != "" {
		return class.NodeTemplate.Zone
	}
	var spec map[string]json.RawMessage
	if json.Unmarshal(class.ProviderSpec.Raw, &spec) != nil {
		return ""
	}
	for _, field := range zonesOfSpecs() {
		var zone string
		if text := spec[field]; len(text) < longestZone && json.Unmarshal(text, &zone) == nil && zone != "" {
			return zone
		}
	}
	return ""
}
