package crds_test

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/crds"
)

// definition is what users and other programs see of a kind.
type definition struct {
	Names        string
	Columns      []string
	Subresources string
	Selectable   string
	// KeepUnknown lists the parts whose unknown fields are kept.
	KeepUnknown []string
}

func TestDefinitions(t *testing.T) {
	template := []string{"spec.template.metadata", "spec.template.spec.nodeTemplate.metadata"}
	scale := "scale .spec.replicas .status.replicas .status.selector"
	want := map[string]definition{
		"MachineDeployment": {
			Names: "machinedeployments [mcd]",
			Columns: []string{
				"Ready .status.readyReplicas", "Desired .spec.replicas", "Up-to-date .status.updatedReplicas",
				"Available .status.availableReplicas", "Age .metadata.creationTimestamp",
			},
			Subresources: "status " + scale,
			KeepUnknown:  template,
		},
		"MachineSet": {
			Names: "machinesets [mcs]",
			Columns: []string{
				"Desired .spec.replicas", "Current .status.replicas", "Ready .status.readyReplicas",
				"Age .metadata.creationTimestamp",
			},
			Subresources: "status " + scale,
			KeepUnknown:  template,
		},
		"Machine": {
			Names: "machines [mc]",
			Columns: []string{
				"Status .status.currentStatus.phase", "Age .metadata.creationTimestamp", "Node .metadata.labels.node",
				"ProviderID .spec.providerID wide",
			},
			Subresources: "status",
			Selectable:   ".spec.class.name",
			KeepUnknown:  []string{"spec.nodeTemplate.metadata"},
		},
		"MachineClass": {
			Names:       "machineclasses [mcc]",
			KeepUnknown: []string{"nodeTemplate", "providerSpec"},
		},
	}
	got := map[string]definition{}
	for _, crd := range all(t) {
		got[crd.Spec.Names.Kind] = describe(crd)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

// crd is the part of a CustomResourceDefinition that is looked at.
type crd struct {
	Spec struct {
		Names struct {
			Kind, Plural string
			ShortNames   []string
		}
		Versions []struct {
			AdditionalPrinterColumns []struct {
				Name, JSONPath string
				Priority       int
			}
			Subresources struct {
				Status *struct{}
				Scale  *struct{ SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string }
			}
			SelectableFields []struct{ JSONPath string }
			Schema           struct{ OpenAPIV3Schema schema }
		}
	}
}

type schema struct {
	KeepUnknown bool `json:"x-kubernetes-preserve-unknown-fields"`
	Properties  map[string]schema
}

func describe(crd crd) definition {
	d := definition{Names: fmt.Sprint(crd.Spec.Names.Plural, " ", crd.Spec.Names.ShortNames)}
	version := crd.Spec.Versions[0]
	for _, column := range version.AdditionalPrinterColumns {
		text := column.Name + " " + column.JSONPath
		if column.Priority > 0 {
			text += " wide"
		}
		d.Columns = append(d.Columns, text)
	}
	if version.Subresources.Status != nil {
		d.Subresources = "status"
	}
	if scale := version.Subresources.Scale; scale != nil {
		d.Subresources += fmt.Sprint(" scale ", scale.SpecReplicasPath, " ", scale.StatusReplicasPath, " ", scale.LabelSelectorPath)
	}
	for _, field := range version.SelectableFields {
		d.Selectable += field.JSONPath
	}
	d.KeepUnknown = keepUnknown(version.Schema.OpenAPIV3Schema, "")
	return d
}

func keepUnknown(s schema, path string) []string {
	var found []string
	if s.KeepUnknown {
		found = append(found, path)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		found = append(found, keepUnknown(s.Properties[name], strings.TrimPrefix(path+"."+name, "."))...)
	}
	return found
}

func all(t *testing.T) []crd {
	t.Helper()
	files, err := fs.Glob(crds.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definitions := make([]crd, len(files))
	for i, file := range files {
		content, err := crds.FS.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(content, &definitions[i]); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return definitions
}
