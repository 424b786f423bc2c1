//go:build e2e

package e2e

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
)

func TestDefinitionsAccept(t *testing.T) {
	t.Parallel()
	fleet, mcm := install(t, "fleet", mcmcrds.Fleet), install(t, "mcm", mcmcrds.Lenient)
	for _, m := range slices.Concat(works, worksHere) {
		t.Run(m.kind+" "+m.patch, func(t *testing.T) {
			t.Parallel()
			for _, api := range []api{fleet, mcm} {
				if _, err := api.create(t.Context(), t, m, metav1.DryRunAll); err != nil {
					t.Errorf("%s: want it accepted, got: %v", api.group, err)
				}
			}
		})
	}
}

// TestManifests creates the manifests of the tests of the Go types.
func TestManifests(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../apis/machine/v1alpha1/testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, definitions := range map[string]source{"fleet": mcmcrds.Fleet, "mcm": mcmcrds.Lenient} {
		api := install(t, name, definitions)
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				t.Fatal(err)
			}
			if _, err := api.createObject(t.Context(), t, object, metav1.DryRunAll); err != nil {
				t.Errorf("%s: %s %s: want it accepted, got: %v", name, object.GetKind(), object.GetName(), err)
			}
		}
	}
}

func TestDefinitionsRefuse(t *testing.T) {
	t.Parallel()
	fleet, mcm := install(t, "fleet", mcmcrds.Fleet), install(t, "mcm", mcmcrds.Lenient)
	for _, b := range broken {
		t.Run(b.kind+" "+b.patch, func(t *testing.T) {
			t.Parallel()
			_, err := fleet.create(t.Context(), t, b.manifest, metav1.DryRunAll)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), b.want) {
				t.Errorf("want it refused with %q, got: %v", b.want, err)
			}
		})
	}
	for _, m := range brokenForMCM {
		t.Run(m.kind+" "+m.patch, func(t *testing.T) {
			t.Parallel()
			for _, api := range []api{fleet, mcm} {
				if _, err := api.create(t.Context(), t, m, metav1.DryRunAll); err == nil {
					t.Errorf("%s: want it refused, got it accepted", api.group)
				}
			}
		})
	}
}

// TestStoredObjectsLiveOn stores objects that break a rule under MCM's definitions, replaces these by the fleet's, and
// then does with each object what must always be possible.
func TestStoredObjectsLiveOn(t *testing.T) {
	t.Parallel()
	api := install(t, "stored", mcmcrds.Lenient)
	names := make([]string, len(broken))
	for i, b := range broken {
		object, err := api.create(t.Context(), t, b.manifest)
		if err != nil {
			t.Fatalf("want it stored under MCM's definitions: %s %s: %v", b.kind, b.patch, err)
		}
		names[i] = object.GetName()
	}
	api.upgrade(t)

	for i, b := range broken {
		t.Run(b.kind+" "+b.patch, func(t *testing.T) {
			t.Parallel()
			objects, name := api.objects(b.kind), names[i]
			patch := func(patch string, subresource ...string) {
				t.Helper()
				_, err := objects.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
				if err != nil {
					t.Errorf("%s %v: %v", patch, subresource, err)
				}
			}
			patch(`{"metadata":{"labels":{"seen":"yes"},"finalizers":["test.example.com/hold"]}}`)
			switch b.kind {
			case "MachineDeployment", "MachineSet":
				patch(`{"spec":{"replicas":5}}`, "scale")
				patch(`{"spec":{"minReadySeconds":7}}`)
				patch(`{"status":{"replicas":1}}`, "status")
			case "Machine":
				patch(`{"spec":{"providerID":"cloud:///a/b"}}`)
				patch(`{"status":{"currentStatus":{"phase":"Running"}}}`, "status")
			case "MachineClass":
				patch(`{"provider":"other"}`)
			}
			if err := objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete: %v", err)
			}
			patch(`{"metadata":{"finalizers":null}}`)
			if _, err := objects.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("want it gone, got: %v", err)
			}
		})
	}
}

// TestStoredRulesStillHold: an invalid stored object cannot be changed to violate further rules.
func TestStoredRulesStillHold(t *testing.T) {
	t.Parallel()
	api := install(t, "stored", mcmcrds.Lenient)
	object, err := api.create(t.Context(), t, manifest{"MachineDeployment", `spec: {selector: {matchLabels: {name: puddle}}}`})
	if err != nil {
		t.Fatal(err)
	}
	api.upgrade(t)
	for patch, accepted := range map[string]bool{
		`{"spec":{"template":{"metadata":{"labels":{"name":"lake"}}}}}`:                      true,
		`{"spec":{"template":{"metadata":{"labels":{"name":"puddle"}}}}}`:                    true,
		`{"spec":{"selector":{"matchLabels":{"name":"sea"}}}}`:                               false,
		`{"spec":{"selector":{"matchLabels":{"tier":"silver"}}}}`:                            false,
		`{"spec":{"selector":{"matchLabels":{"tier":"gold"}}}}`:                              true,
		`{"spec":{"selector":null}}`:                                                         false,
		`{"spec":{"template":{"spec":{"class":null}}}}`:                                      false,
		`{"spec":{"selector":{"matchLabels":{"tier":"gold"}},"template":{"metadata":null}}}`: false,
	} {
		_, err := api.objects("MachineDeployment").Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != accepted {
			t.Errorf("%s: want accepted %t, got: %v", patch, accepted, err)
		}
	}
}

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	for name, definitions := range map[string]source{"fleet": mcmcrds.Fleet, "mcm": mcmcrds.Lenient} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := install(t, name, definitions)
			for _, test := range []struct {
				manifest
				kept []string
			}{
				{manifest{"MachineDeployment", `spec: {unknown: 1, template: {unknown: 1, metadata: {kept: 1}, spec: {unknown: 1, nodeTemplate: {unknown: 1, metadata: {kept: 1}}}}}`}, []string{"spec.template.metadata.kept", "spec.template.spec.nodeTemplate.metadata.kept"}},
				{manifest{"MachineSet", `spec: {template: {metadata: {kept: 1}, spec: {nodeTemplate: {metadata: {kept: 1}}}}}`}, []string{"spec.template.metadata.kept", "spec.template.spec.nodeTemplate.metadata.kept"}},
				{manifest{"Machine", `spec: {unknown: 1, nodeTemplate: {metadata: {kept: 1}}}`}, []string{"spec.nodeTemplate.metadata.kept"}},
				{manifest{"MachineClass", `{unknown: 1, nodeTemplate: {kept: 1}, providerSpec: {deep: {kept: 1}}}`}, []string{"nodeTemplate.kept", "providerSpec.deep.kept"}},
			} {
				object, err := api.create(t.Context(), t, test.manifest)
				if err != nil {
					t.Error(err)
					continue
				}
				if diff := cmp.Diff(test.kept, added(object.Object, "")); diff != "" {
					t.Errorf("%s: unknown fields kept (-want +got):\n%s", test.kind, diff)
				}
			}
		})
	}
}

// added lists the paths of fields named kept or unknown.
func added(value any, path string) []string {
	fields, _ := value.(map[string]any)
	var found []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		inner := strings.TrimPrefix(path+"."+name, ".")
		if name == "kept" || name == "unknown" {
			found = append(found, inner)
		}
		found = append(found, added(fields[name], inner)...)
	}
	return found
}

func TestScale(t *testing.T) {
	t.Parallel()
	api := install(t, "fleet", mcmcrds.Fleet)
	for _, kind := range []string{"MachineDeployment", "MachineSet"} {
		object, err := api.create(t.Context(), t, manifest{kind, `spec: {replicas: null}`})
		if err != nil {
			t.Fatal(err)
		}
		objects, name := api.objects(kind), object.GetName()
		for _, step := range []struct{ subresource, patch string }{
			{"status", `{"status":{"replicas":1,"selector":"name=pool"}}`},
			{"scale", `{"spec":{"replicas":4}}`},
		} {
			if _, err := objects.Patch(t.Context(), name, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{}, step.subresource); err != nil {
				t.Fatal(err)
			}
		}
		scale, err := objects.Get(t.Context(), name, metav1.GetOptions{}, "scale")
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"spec":   map[string]any{"replicas": int64(4)},
			"status": map[string]any{"replicas": int64(1), "selector": "name=pool"},
		}
		got := map[string]any{"spec": scale.Object["spec"], "status": scale.Object["status"]}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: scale (-want +got):\n%s", kind, diff)
		}
	}
}

func TestSelectMachinesByClass(t *testing.T) {
	t.Parallel()
	api := install(t, "fleet", mcmcrds.Fleet)
	for _, patch := range []string{`{}`, `spec: {class: {name: large}}`} {
		if _, err := api.create(t.Context(), t, manifest{"Machine", patch}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := api.objects("Machine").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.class.name=large"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("want one machine of class large, got %d: %v", len(list.Items), err)
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"MachineDeployment": "Name Ready Desired Up-to-date Available Age",
		"MachineSet":        "Name Desired Current Ready Age",
		"Machine":           "Name Status Age Node ProviderID*",
		"MachineClass":      "Name Age",
	}
	for name, definitions := range map[string]source{"fleet": mcmcrds.Fleet, "mcm": mcmcrds.Lenient} {
		api := install(t, name, definitions)
		got := map[string]string{}
		for kind := range want {
			got[kind] = api.columns(t, kind)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: columns, * where only -o wide shows them (-want +got):\n%s", name, diff)
		}
	}
}
