// Package mcmcrds derives from the fleet's CustomResourceDefinitions ones that are as lenient as
// MCM's: Gardener installs MCM's, and the fleet must work with them. They replace the originals in
// tests.
//
// What they lack, as MCM's do: rules, limits and defaults of any kind, the selector of the scale
// subresource with the status field that it needs, selection of machines by class, and a schema for
// the metadata of templates. Patterns stay: MCM's definitions have them for quantities.
package mcmcrds

import (
	"context"
	"fmt"
	"io/fs"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/crds"
)

// Fleet returns the fleet's own definitions, one for each kind.
func Fleet() ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(crds.FS, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the embedded definitions: %w", err)
	}
	var definitions []*unstructured.Unstructured
	for _, file := range files {
		content, err := crds.FS.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the embedded definition %s: %w", file, err)
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &definition.Object); err != nil {
			return nil, fmt.Errorf("definition %s: want YAML: %w", file, err)
		}
		definitions = append(definitions, definition)
	}
	return definitions, nil
}

// Lenient returns definitions of the same kinds, as lenient as MCM's.
func Lenient() ([]*unstructured.Unstructured, error) {
	definitions, err := Fleet()
	if err != nil {
		return nil, err
	}
	for _, definition := range definitions {
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil {
			return nil, fmt.Errorf("definition %s: %w", definition.GetName(), err)
		}
		for _, version := range versions {
			if version, ok := version.(map[string]any); ok {
				loosen(version)
			}
		}
		if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
			return nil, fmt.Errorf("definition %s: %w", definition.GetName(), err)
		}
	}
	return definitions, nil
}

// Resource is that of definitions.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// Replace replaces the definitions with the same names.
func Replace(ctx context.Context, client dynamic.Interface, by []*unstructured.Unstructured) error {
	for _, crd := range by {
		stored, err := client.Resource(Resource()).Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read definition %s: %w", crd.GetName(), err)
		}
		crd.SetResourceVersion(stored.GetResourceVersion())
		if _, err := client.Resource(Resource()).Update(ctx, crd, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("replace definition %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

func loosen(version map[string]any) {
	delete(version, "selectableFields")
	unstructured.RemoveNestedField(version, "subresources", "scale", "labelSelectorPath")
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "selector")
	if schema, ok, _ := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema"); ok {
		loosenSchema(schema)
	}
}

// loosenSchema drops every limit of a schema and of those inside it.
func loosenSchema(node any) {
	schema, ok := node.(map[string]any)
	if !ok {
		return
	}
	for _, limit := range []string{
		"x-kubernetes-validations", "default", "enum", "minimum", "maximum", "minLength", "maxLength",
		"minItems", "maxItems", "minProperties", "maxProperties",
	} {
		delete(schema, limit)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		loosenSchema(property)
		if property, ok := property.(map[string]any); ok && name == "metadata" {
			delete(property, "properties")
		}
	}
	loosenSchema(schema["items"])
	loosenSchema(schema["additionalProperties"])
}
