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

// definition contains the parts of a kind that users and other programs see.
type definition struct {
	Names        string
	Columns      []string
	Subresources string
	Selectable   string
	// KeepUnknown lists the parts whose unknown fields are kept.
	KeepUnknown []string
	// Zeros lists the fields that are 0 where an object does not have them, so that columns show it.
	Zeros []string
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
				`Min .metadata.annotations.autoscaler\.machine\.sapcloud\.io/min-size wide`,
				`Max .metadata.annotations.autoscaler\.machine\.sapcloud\.io/max-size wide`,
				"Paused .spec.paused wide", reason("Progressing", "conditions", "Progressing"), reason("Stalled", "conditions", "RolloutStalled"),
				reason("Held", "conditions", "DeletionsHeld"), reason("Frozen", "conditions", "Frozen"), reason("Invalid", "conditions", "Valid"),
				reason("Failure", "conditions", "ReplicaFailure"), reason("Create-Failed", "conditions", "MachineCreateFailure"),
				reason("Breaker", "conditions", "CircuitBreakerOpen"),
				"Preserved-Failed .status.preservedFailedReplicas wide",
			},
			Subresources: "status " + scale,
			KeepUnknown:  template,
			Zeros: []string{
				"spec.replicas", "status.availableReplicas", "status.readyReplicas", "status.replicas", "status.unavailableReplicas",
				"status.updatedReplicas",
			},
		},
		"MachineSet": {
			Names: "machinesets [mcs]",
			Columns: []string{
				"Desired .spec.replicas", "Current .status.replicas", "Ready .status.readyReplicas",
				"Age .metadata.creationTimestamp",
				"Available .status.availableReplicas wide", reason("Failure", "machineSetCondition", "ReplicaFailure"),
				reason("Held", "machineSetCondition", "DeletionsHeld"), reason("Frozen", "machineSetCondition", "Frozen"),
				reason("Invalid", "machineSetCondition", "Valid"), reason("Create-Failed", "machineSetCondition", "MachineCreateFailure"),
				reason("Breaker", "machineSetCondition", "CircuitBreakerOpen"), "Preserved-Failed .status.preservedFailedReplicas wide",
			},
			Subresources: "status " + scale,
			KeepUnknown:  template,
			Zeros: []string{
				"spec.replicas", "status.availableReplicas", "status.fullyLabeledReplicas", "status.readyReplicas", "status.replicas",
			},
		},
		"Machine": {
			Names: "machines [mc]",
			Columns: []string{
				"Status .status.currentStatus.phase", "Age .metadata.creationTimestamp", "Node .metadata.labels.node",
				"ProviderID .spec.providerID wide", "Since .status.currentStatus.lastUpdateTime wide",
				"Preserved-Until .status.currentStatus.preserveExpiryTime wide",
				"Operation .status.lastOperation.type wide", "Result .status.lastOperation.state wide", "Reason .status.lastOperation.description wide",
			},
			Subresources: "status",
			Selectable:   ".spec.class.name",
			KeepUnknown:  []string{"spec.nodeTemplate.metadata"},
		},
		"MachineClass": {
			Names: "machineclasses [mcc]",
			Columns: []string{
				"Provider .provider wide", "Instance-Type .nodeTemplate.instanceType wide", "Age .metadata.creationTimestamp",
				`Unknown-Fields .metadata.annotations.fleet\.machine\.sapcloud\.io/unknown-fields wide`, "Finalizers .metadata.finalizers wide",
			},
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

// reason returns the column with the reason of a condition.
func reason(column, field, condition string) string {
	return fmt.Sprintf("%s .status.%s[?(@.type==%q)].reason wide", column, field, condition)
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
	Default     any
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
	d.KeepUnknown = fields(version.Schema.OpenAPIV3Schema, "", func(s schema) bool { return s.KeepUnknown })
	d.Zeros = fields(version.Schema.OpenAPIV3Schema, "", func(s schema) bool { return s.Default == 0.0 })
	return d
}

// fields returns the paths of the fields that match.
func fields(s schema, path string, matches func(s schema) bool) []string {
	var found []string
	if matches(s) {
		found = append(found, path)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		found = append(found, fields(s.Properties[name], strings.TrimPrefix(path+"."+name, "."), matches)...)
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
