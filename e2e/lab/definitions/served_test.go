package definitions_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"
)

// source returns new copies of definitions each time.
type source func() ([]*unstructured.Unstructured, error)

// served maps a kind to the definition as the API server returns it.
type served map[string]kind

// kind reads and validates the objects of one kind.
type kind struct {
	apiVersion string
	schema     *structuralschema.Structural
	objects    rest.RESTCreateUpdateStrategy
	status     rest.RESTUpdateStrategy
}

// serve builds schemas and rules as the API server does when definitions are created.
func serve(t *testing.T, from source) served {
	t.Helper()
	definitions, err := from()
	if err != nil {
		t.Fatal(err)
	}
	kinds := served{}
	for _, definition := range definitions {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(definition.Object, &crd); err != nil {
			t.Fatal(err)
		}
		if len(crd.Spec.Versions) != 1 {
			t.Fatalf("%s: expected one version, got %d", crd.Name, len(crd.Spec.Versions))
		}
		k, err := newKind(&crd.Spec, &crd.Spec.Versions[0])
		if err != nil {
			t.Fatalf("%s: %v", crd.Name, err)
		}
		kinds[crd.Spec.Names.Kind] = k
	}
	return kinds
}

func newKind(crd *apiextensionsv1.CustomResourceDefinitionSpec, version *apiextensionsv1.CustomResourceDefinitionVersion) (kind, error) {
	gvk := schema.GroupVersionKind{Group: crd.Group, Version: version.Name, Kind: crd.Names.Kind}
	k := kind{apiVersion: gvk.GroupVersion().String()}
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, &internal,
		nil); err != nil {
		return k, err
	}
	var err error
	if k.schema, err = structuralschema.NewStructural(internal.OpenAPIV3Schema); err != nil {
		return k, err
	}
	ofObject, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return k, err
	}
	var ofStatus validation.SchemaValidator
	var status *apiextensions.CustomResourceSubresourceStatus
	var scale *apiextensions.CustomResourceSubresourceScale
	if subresources := version.Subresources; subresources != nil && subresources.Status != nil {
		properties := internal.OpenAPIV3Schema.Properties["status"]
		if ofStatus, _, err = validation.NewSchemaValidator(&properties); err != nil {
			return k, err
		}
		status = &apiextensions.CustomResourceSubresourceStatus{}
	}
	if subresources := version.Subresources; subresources != nil && subresources.Scale != nil {
		scale = &apiextensions.CustomResourceSubresourceScale{
			SpecReplicasPath: subresources.Scale.SpecReplicasPath, StatusReplicasPath: subresources.Scale.StatusReplicasPath,
			LabelSelectorPath: subresources.Scale.LabelSelectorPath,
		}
	}
	strategy := customresource.NewStrategy(crdserverscheme.NewUnstructuredObjectTyper(), true, gvk, ofObject, ofStatus, k.schema, status,
		scale, version.SelectableFields)
	k.objects, k.status = strategy, customresource.NewStatusStrategy(strategy)
	return k, nil
}

// decode removes what the schema does not know, and sets defaults.
func (k kind) decode(object *unstructured.Unstructured) error {
	meta, _, err := objectmeta.GetObjectMeta(object.Object, false)
	if err != nil {
		return err
	}
	pruning.Prune(object.Object, k.schema, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, k.schema)
	if err := objectmeta.Coerce(nil, object.Object, k.schema, false, false); err != nil {
		return err
	}
	if err := objectmeta.SetObjectMeta(object.Object, meta); err != nil {
		return err
	}
	defaulting.Default(object.Object, k.schema)
	return nil
}

// create returns the object as it is stored, or the error with which it is refused.
func (s served) create(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k := s[object.GetKind()]
	object.SetAPIVersion(k.apiVersion)
	object.SetNamespace(metav1.NamespaceDefault)
	if object.GetName() == "" {
		object.SetName("m")
	}
	if err := k.decode(object); err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(object)
	object.SetResourceVersion("1")
	return object, rest.BeforeCreate(k.objects, inDefault(ctx), object)
}

// patch returns the object after a merge patch, of its status for the subresource of that name, or
// the error with which it is refused.
func (s served) patch(ctx context.Context, old *unstructured.Unstructured, patch, subresource string) (*unstructured.Unstructured, error) {
	k := s[old.GetKind()]
	before, err := old.MarshalJSON()
	if err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(before, []byte(patch))
	if err != nil {
		return nil, err
	}
	changed := &unstructured.Unstructured{}
	if err := changed.UnmarshalJSON(after); err != nil {
		return nil, err
	}
	if err := k.decode(changed); err != nil {
		return nil, err
	}
	strategy := rest.RESTUpdateStrategy(k.objects)
	if subresource == "status" {
		strategy = k.status
	}
	return changed, rest.BeforeUpdate(strategy, inDefault(ctx), changed, old)
}

func inDefault(ctx context.Context) context.Context {
	return genericapirequest.WithNamespace(ctx, metav1.NamespaceDefault)
}

// object returns the valid manifest of the kind, changed by the patch.
func (m manifest) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	var goods map[string]map[string]any
	var patch map[string]any
	for text, into := range map[string]any{good: &goods, m.patch: &patch} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
	merge(goods[m.kind], patch)
	goods[m.kind]["kind"] = m.kind
	content, err := yaml.Marshal(goods[m.kind])
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, content)
}

// parse returns the object of a document in YAML, with numbers as the API server has them.
func parse(t *testing.T, document []byte) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		t.Fatal(fmt.Errorf("%w in:\n%s", err, document))
	}
	return object
}

// merge applies a JSON merge patch. Null takes a field away, except where it is a time that tools
// print as null.
func merge(object, patch map[string]any) {
	for name, value := range patch {
		inner, isMap := object[name].(map[string]any)
		change, changesMap := value.(map[string]any)
		switch {
		case isMap && changesMap:
			merge(inner, change)
		case value == nil && !strings.HasSuffix(name, "Timestamp") && !strings.HasSuffix(name, "Time"):
			delete(object, name)
		default:
			object[name] = value
		}
	}
}
