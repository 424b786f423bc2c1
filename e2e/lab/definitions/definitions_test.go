// Package definitions_test runs schemas and rules of the fleet's CustomResourceDefinitions, and of
// definitions as lenient as MCM's, in the code that the API server runs for them: structural
// schemas, pruning, CEL rules, and their ratcheting for stored objects.
package definitions_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
)

// both returns the fleet's definitions and those as lenient as MCM's.
func both(t *testing.T) map[string]served {
	t.Helper()
	return map[string]served{"fleet": serve(t, mcmcrds.Fleet), "mcm": serve(t, mcmcrds.Lenient)}
}

func TestDefinitionsAccept(t *testing.T) {
	t.Parallel()
	for name, definitions := range both(t) {
		for _, m := range slices.Concat(works, worksHere) {
			if _, err := definitions.create(t.Context(), m.object(t)); err != nil {
				t.Errorf("%s: %s %s: want it accepted, got: %v", name, m.kind, m.patch, err)
			}
		}
	}
}

// TestManifests creates the manifests of the tests of the Go types.
func TestManifests(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../../apis/machine/v1alpha1/testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, definitions := range both(t) {
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			object := parse(t, []byte(document))
			if _, err := definitions.create(t.Context(), object); err != nil {
				t.Errorf("%s: %s %s: want it accepted, got: %v", name, object.GetKind(), object.GetName(), err)
			}
		}
	}
}

func TestDefinitionsRefuse(t *testing.T) {
	t.Parallel()
	all := both(t)
	for _, b := range broken {
		_, err := all["fleet"].create(t.Context(), b.object(t))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), b.want) {
			t.Errorf("%s %s: want it refused with %q, got: %v", b.kind, b.patch, b.want, err)
		}
	}
	for name, definitions := range all {
		for _, m := range brokenForMCM {
			if _, err := definitions.create(t.Context(), m.object(t)); err == nil {
				t.Errorf("%s: %s %s: want it refused, got it accepted", name, m.kind, m.patch)
			}
		}
	}
}

// TestStoredObjectsLiveOn stores objects that break a rule under MCM's definitions, and then does
// with each object, under the fleet's definitions, what must always be possible.
func TestStoredObjectsLiveOn(t *testing.T) {
	t.Parallel()
	all := both(t)
	for _, b := range broken {
		object, err := all["mcm"].create(t.Context(), b.object(t))
		if err != nil {
			t.Fatalf("want it stored under MCM's definitions: %s %s: %v", b.kind, b.patch, err)
		}
		patch := func(patch, subresource string) {
			t.Helper()
			changed, err := all["fleet"].patch(t.Context(), object, patch, subresource)
			if err != nil {
				t.Errorf("%s %s: %s %s: %v", b.kind, b.patch, patch, subresource, err)
				return
			}
			object = changed
		}
		patch(`{"metadata":{"labels":{"seen":"yes"},"finalizers":["test.example.com/hold"]}}`, "")
		switch b.kind {
		case "MachineDeployment", "MachineSet":
			patch(`{"spec":{"replicas":5}}`, "")
			patch(`{"spec":{"minReadySeconds":7}}`, "")
			patch(`{"status":{"replicas":1}}`, "status")
		case "Machine":
			patch(`{"spec":{"providerID":"cloud:///a/b"}}`, "")
			patch(`{"status":{"currentStatus":{"phase":"Running"}}}`, "status")
		case "MachineClass":
			patch(`{"provider":"other"}`, "")
		}
		object.SetDeletionTimestamp(new(metav1.Now()))
		patch(`{"metadata":{"finalizers":null}}`, "")
		if len(object.GetFinalizers()) > 0 {
			t.Errorf("%s %s: it cannot be deleted", b.kind, b.patch)
		}
	}
}

// TestStoredRulesStillHold: an invalid stored object cannot be changed to violate further rules.
func TestStoredRulesStillHold(t *testing.T) {
	t.Parallel()
	all := both(t)
	object, err := all["mcm"].create(t.Context(), manifest{"MachineDeployment", `spec: {selector: {matchLabels: {name: puddle}}}`}.object(t))
	if err != nil {
		t.Fatal(err)
	}
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
		if _, err := all["fleet"].patch(t.Context(), object, patch, ""); (err == nil) != accepted {
			t.Errorf("%s: want accepted %t, got: %v", patch, accepted, err)
		}
	}
}

// TestStoredValuesStay: labels and annotations that no Node may have stay in a template that has
// them, and others can be changed next to them. A list of taints is changed as a whole.
func TestStoredValuesStay(t *testing.T) {
	t.Parallel()
	all := both(t)
	object, err := all["mcm"].create(t.Context(), manifest{
		"MachineDeployment", `spec: {template: {metadata: {annotations: {a b: c}}, spec: {nodeTemplate: {metadata: {labels: {a b: c, d: e f}}, ` +
			`spec: {taints: [{key: a b, effect: Never}]}}}}}`,
	}.object(t))
	if err != nil {
		t.Fatal(err)
	}
	for patch, accepted := range map[string]bool{
		`{"metadata":{"annotations":{"ok":"c"}}}`:                                                                           true,
		`{"metadata":{"annotations":{"c d":"e"}}}`:                                                                          false,
		`{"spec":{"nodeTemplate":{"metadata":{"labels":{"ok":"c"}}}}}`:                                                      true,
		`{"spec":{"nodeTemplate":{"metadata":{"labels":{"c d":"e"}}}}}`:                                                     false,
		`{"spec":{"nodeTemplate":{"metadata":{"labels":{"ok":"e f"}}}}}`:                                                    false,
		`{"spec":{"nodeTemplate":{"spec":{"taints":[{"key":"ok","effect":"NoSchedule"},{"key":"a b","effect":"Never"}]}}}}`: false,
		`{"spec":{"nodeTemplate":{"spec":{"taints":[{"key":"ok","effect":"NoSchedule"}]}}}}`:                                true,
		`{"spec":{"class":{"name":"new"}}}`:                                                                                 true,
	} {
		if _, err := all["fleet"].patch(t.Context(), object, `{"spec":{"template":`+patch+`}}`, ""); (err == nil) != accepted {
			t.Errorf("%s: want accepted %t, got: %v", patch, accepted, err)
		}
	}
}

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	for name, definitions := range both(t) {
		for _, test := range []struct {
			manifest
			kept []string
		}{
			{manifest{
				"MachineDeployment",
				`spec: {unknown: 1, template: {unknown: 1, metadata: {kept: 1}, spec: {unknown: 1, nodeTemplate: {unknown: 1, metadata: {kept: 1}}}}}`,
			}, []string{"spec.template.metadata.kept", "spec.template.spec.nodeTemplate.metadata.kept"}},
			{manifest{"MachineSet", `spec: {template: {metadata: {kept: 1}, spec: {nodeTemplate: {metadata: {kept: 1}}}}}`}, []string{
				"spec.template.metadata.kept", "spec.template.spec.nodeTemplate.metadata.kept",
			}},
			{manifest{"Machine", `spec: {unknown: 1, nodeTemplate: {metadata: {kept: 1}}}`}, []string{"spec.nodeTemplate.metadata.kept"}},
			{manifest{"MachineClass", `{unknown: 1, nodeTemplate: {kept: 1}, providerSpec: {deep: {kept: 1}}}`}, []string{
				"nodeTemplate.kept", "providerSpec.deep.kept",
			}},
		} {
			object, err := definitions.create(t.Context(), test.object(t))
			if err != nil {
				t.Error(err)
				continue
			}
			if diff := cmp.Diff(test.kept, added(object.Object, "")); diff != "" {
				t.Errorf("%s: %s: unknown fields kept (-want +got):\n%s", name, test.kind, diff)
			}
		}
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
