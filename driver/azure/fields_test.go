package azure

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Fields of Azure's API that the driver does not know, and fields of Machine Controller Manager's
// provider that have no effect.
func TestUnknownFields(t *testing.T) {
	withoutEffect := []string{
		"properties.networkProfile.networkInterfaces", "properties.osProfile.adminPassword", "properties.osProfile.computerName",
		"properties.osProfile.customData",
		"properties.storageProfile.osDisk.name",
	}
	for path, tc := range map[string]struct {
		value any
		want  string
	}{
		"location": {"westeurope", ""},
		"properties securityProfile encryptionAtHost": {true, "properties.securityProfile.encryptionAtHost"},
		"properties storageProfile osDisk managedDisk diskEncryptionSet": {
			map[string]string{"id": "s"}, "properties.storageProfile.osDisk.managedDisk.diskEncryptionSet",
		},
		"properties storageProfile osDisk managedDisk id":       {"disk", "properties.storageProfile.osDisk.managedDisk.id"},
		"properties storageProfile dataDisks diskEncryptionSet": {"s", "properties.storageProfile.dataDisks[].diskEncryptionSet"},
		"properties additionalCapabilities":                     {map[string]bool{"ultraSSDEnabled": true}, "properties.additionalCapabilities"},
		"properties priority":                                   {"Spot", "properties.priority"},
		"priority":                                              {"Spot", "priority"},
	} {
		want := slices.Clone(withoutEffect)
		if tc.want != "" {
			want = append(want, tc.want)
		}
		slices.Sort(want)
		class := &v1alpha1.MachineClass{ProviderSpec: runtime.RawExtension{Raw: changed(t, path, tc.value)}}
		got, err := (*Driver)(nil).GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: class})
		if err != nil || !slices.Equal(got.Fields, want) {
			t.Errorf("%s: %q (%v), want %q", path, got.Fields, err, want)
		}
	}
	class := &v1alpha1.MachineClass{ProviderSpec: runtime.RawExtension{Raw: []byte(`{"location": 5}`)}}
	if _, err := (*Driver)(nil).
		GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: class}); driver.CodeOf(err) != driver.InvalidArgument {
		t.Errorf("a spec that cannot be decoded: %v, want InvalidArgument", err)
	}
}

// TestDocumentedClasses: the driver accepts the MachineClasses of its pages, and knows all of their
// fields.
func TestDocumentedClasses(t *testing.T) {
	for _, page := range []string{"azure.md", "first-node-azure.md"} {
		content, err := os.ReadFile("../../docs/drivers/" + page)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, document := range regexp.MustCompile("(?ms)^apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\n.*?^(?:---|```)$").
			FindAllString(string(content), -1) {
			found++
			var class v1alpha1.MachineClass
			if err := yaml.Unmarshal([]byte(strings.TrimRight(document, "-`")), &class); err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			if _, err := ParseProviderSpec(class.ProviderSpec.Raw); err != nil {
				t.Errorf("%s: %v", page, err)
			}
			fields, err := (*Driver)(nil).GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: &class})
			if err != nil || len(fields.Fields) > 0 {
				t.Errorf("%s: unknown fields %q, %v", page, fields.Fields, err)
			}
		}
		if found == 0 {
			t.Errorf("%s has no MachineClass", page)
		}
	}
}
