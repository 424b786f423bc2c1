package watch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/pagetest"
)

func TestZonesOfClasses(t *testing.T) {
	for _, c := range []struct{ name, template, spec, want string }{
		{name: "the template's", template: "a", spec: `{"zone":"b"}`, want: "a"},
		{name: "the spec's", spec: `{"instanceType":"x","zone":"sim-1a"}`, want: "sim-1a"},
		{name: "the spec's under another name", spec: `{"zone":1,"availabilityZone":"b"}`, want: "b"},
		{name: "a number", spec: `{"zone":1}`},
		{name: "null", spec: `{"zone":null}`},
		{name: "no object", spec: `["zone"]`},
		{name: "no spec"},
		{name: "a very long one", spec: `{"zone":"` + strings.Repeat("z", 2*mostText) + `"}`},
	} {
		class := &v1alpha1.MachineClass{}
		class.ProviderSpec.Raw = []byte(c.spec)
		if c.template != "" {
			class.NodeTemplate = &v1alpha1.NodeTemplate{Zone: c.template}
		}
		is, got := classWithZone(class), ""
		if is.NodeTemplate != nil {
			got = is.NodeTemplate.Zone
		}
		if got != c.want || len(is.ProviderSpec.Raw) > 0 {
			t.Errorf("%s: zone %q, want %q; %d bytes of the spec", c.name, got, c.want, len(is.ProviderSpec.Raw))
		}
	}
}

// TestMachinesAreInTheZoneOfTheirClass, as in a fleet whose classes have no template of Nodes.
func TestMachinesAreInTheZoneOfTheirClass(t *testing.T) {
	in := pagetest.NewWorld(1, time.Unix(1_800_000_000, 0)).Read()
	in.Machines[0].Spec.NodeTemplateSpec.Labels = nil
	for _, spec := range []string{`{"zone":"sim-1a"}`, `{}`} {
		classes := slices.Clone(in.Classes)
		for i, class := range classes {
			class.ProviderSpec.Raw = []byte(spec)
			classes[i] = classWithZone(class)
		}
		shown := in
		shown.Classes = classes
		want := map[bool]string{true: "sim-1a", false: model.UnknownZone}[spec != "{}"]
		if zones := model.Of(shown).Counts.Zones; len(zones) != 1 || zones[0].Name != want || zones[0].Count != 1 {
			t.Errorf("%s: zones %+v, want 1 in %s", spec, zones, want)
		}
	}
}
