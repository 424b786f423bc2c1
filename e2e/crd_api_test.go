//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
)

// source returns new copies of definitions each time.
type source func() ([]*unstructured.Unstructured, error)

// api is the machine API under a group of its own, so that neither a running fleet nor another test changes the objects.
type api struct {
	group   string
	client  dynamic.Interface
	plurals map[string]string
}

// install serves the definitions until the test ends.
func install(t *testing.T, name string, from source) api {
	t.Helper()
	config := rest.CopyConfig(shared(t).Config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	a := api{
		group:   fmt.Sprintf("%s-%x.example.com", name, time.Now().UnixNano()),
		client:  client,
		plurals: map[string]string{},
	}
	for _, crd := range a.definitions(t, from) {
		created, err := client.Resource(mcmcrds.Resource()).Create(t.Context(), crd, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			if err := client.Resource(mcmcrds.Resource()).Delete(ctx, created.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		a.plurals[kind], _, _ = unstructured.NestedString(crd.Object, "spec", "names", "plural")
	}
	for kind := range a.plurals {
		eventually(t, "API server serves "+kind, func(ctx context.Context) error {
			_, err := a.create(ctx, t, manifest{kind, `{}`}, metav1.DryRunAll)
			return err
		})
	}
	return a
}

func (a api) definitions(t *testing.T, from source) []*unstructured.Unstructured {
	t.Helper()
	crds, err := from()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		crd.SetName(plural + "." + a.group)
		if err := unstructured.SetNestedField(crd.Object, a.group, "spec", "group"); err != nil {
			t.Fatal(err)
		}
		// The short names are those of the running fleet's objects, which other tests ask kubectl for.
		unstructured.RemoveNestedField(crd.Object, "spec", "names", "shortNames")
	}
	return crds
}

// upgrade replaces the definitions by the fleet's and waits until they are in force.
func (a api) upgrade(t *testing.T) {
	t.Helper()
	if err := mcmcrds.Replace(t.Context(), a.client, a.definitions(t, mcmcrds.Fleet)); err != nil {
		t.Fatal(err)
	}
	for _, m := range []manifest{
		{"MachineDeployment", `spec: {selector: null}`},
		{"MachineSet", `spec: {selector: null}`},
		{"Machine", `spec: {class: {name: null}}`},
		{"MachineClass", `nodeTemplate: {zone: ""}`},
	} {
		eventually(t, "API server refuses a broken "+m.kind, func(ctx context.Context) error {
			_, err := a.create(ctx, t, m, metav1.DryRunAll)
			if !apierrors.IsInvalid(err) {
				return fmt.Errorf("want it refused, got: %w", err)
			}
			return nil
		})
	}
}

func (a api) objects(kind string) dynamic.ResourceInterface {
	resource := schema.GroupVersionResource{Group: a.group, Version: "v1alpha1", Resource: a.plurals[kind]}
	return a.client.Resource(resource).Namespace(metav1.NamespaceDefault)
}

func (a api) create(ctx context.Context, t *testing.T, m manifest, dryRun ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	var goods map[string]map[string]any
	var patch map[string]any
	for text, into := range map[string]any{good: &goods, m.patch: &patch} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
	object := &unstructured.Unstructured{Object: goods[m.kind]}
	object.SetGenerateName("m-")
	merge(object.Object, patch)
	object.SetKind(m.kind)
	return a.createObject(ctx, t, object, dryRun...)
}

// createObject creates the object in the group of this API and in the namespace default.
func (a api) createObject(ctx context.Context, t *testing.T, object *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	object.SetAPIVersion(a.group + "/v1alpha1")
	object.SetNamespace(metav1.NamespaceDefault)
	return a.objects(object.GetKind()).Create(ctx, object, metav1.CreateOptions{DryRun: dryRun})
}

// merge applies a JSON merge patch. Null takes a field away, except where it is a time that tools print as null.
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

func (a api) columns(t *testing.T, kind string) string {
	t.Helper()
	// This client retries while the API server is not ready to list the new kinds.
	answer, err := shared(t).Control.Discovery().RESTClient().Get().AbsPath("/apis", a.group, "v1alpha1", a.plurals[kind]).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(answer, &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, column := range table.ColumnDefinitions {
		if column.Priority > 0 {
			column.Name += "*"
		}
		columns = append(columns, column.Name)
	}
	return strings.Join(columns, " ")
}
