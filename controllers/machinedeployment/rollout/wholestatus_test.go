package rollout

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// TestWholeStatus compares the status in the middle of a rollout, testdata/status/status.yaml, with
// what Decide writes. A field that no code fills, or whose sources testdata/status/world.yaml does
// not have, is reported.
func TestWholeStatus(t *testing.T) {
	w := World{
		Now: born, Confirmed: true, KeepFromAutoscaler: true, Machines: map[types.UID][]*v1alpha1.Machine{}, Nodes: map[string]*corev1.Node{},
	}
	content, err := os.ReadFile("testdata/status/world.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		switch {
		case strings.Contains(document, "kind: MachineDeployment\n"):
			w.Deployment = decoded[v1alpha1.MachineDeployment](t, document)
		case strings.Contains(document, "kind: MachineSet\n"):
			w.Owned = append(w.Owned, decoded[v1alpha1.MachineSet](t, document))
		case strings.Contains(document, "kind: Node\n"):
			node := decoded[corev1.Node](t, document)
			w.Nodes[node.Name] = node
		default:
			m := decoded[v1alpha1.Machine](t, document)
			set := types.UID(m.Labels["set"])
			w.Machines[set] = append(w.Machines[set], m)
		}
	}
	v := Decide(w)
	for range 10 {
		if v.Do == Save {
			w.Deployment = v.Deployment
		}
		for _, set := range v.Sets { // to update
			w.Owned[slices.IndexFunc(w.Owned, func(s *v1alpha1.MachineSet) bool { return s.UID == set.UID })] = set
		}
		v = Decide(w)
	}
	if v.Do != Rest || v.Deployment == nil {
		t.Fatalf("%s: %v, want a pass that ends", v.Do, v)
	}
	status := reflect.ValueOf(v.Deployment.Status)
	for i := range status.NumField() {
		if status.Field(i).IsZero() {
			t.Errorf("status.%s is not set: compute it in status.go, from what you add to testdata/status/world.yaml", status.Type().Field(i).Name)
		}
	}
	got, err := yaml.Marshal(v.Deployment.Status)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/status/status.yaml", string(got))
}

func decoded[T any](t *testing.T, document string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		t.Fatal(err)
	}
	return object
}
