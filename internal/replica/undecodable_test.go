package replica

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// notes keeps the messages of Events, by the object that they are about.
type notes []string

// Eventf is events.EventRecorder's.
func (n *notes) Eventf(about, _ runtime.Object, eventtype, reason, _, _ string, args ...any) {
	ref, _ := about.(*corev1.ObjectReference)
	message, _ := args[0].(string)
	*n = append(*n, eventtype+" "+reason+" "+ref.Kind+"/"+ref.Name+": "+message)
}

func failure(kind, name, version string) *decode.Failure {
	return &decode.Failure{
		PartialObjectMetadata: metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: name, ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelSlot: "1"},
			},
		},
		Cause: `spec.drainTimeout: time: invalid duration "soon"`,
	}
}

func TestAnUndecodableObjectHasAnEventForEachVersion(t *testing.T) {
	var got notes
	view := objectcache.NewView()
	u := &undecodable{view: view, events: &got}
	u.watch()
	key := types.NamespacedName{Namespace: "n", Name: "m"}
	view.Machines.Undecodable.Apply(failure("Machine", "m", "5"), true)
	if len(got) > 0 {
		t.Errorf("reported %v before the slot is open", got)
	}
	view.Machines.Undecodable.Announce(1)
	view.Machines.Undecodable.Apply(failure("Machine", "m", "5"), false)
	view.Classes.Undecodable.Apply(failure("MachineClass", "c", "6"), false)
	view.Machines.Undecodable.Apply(failure("Machine", "m", "7"), false)
	view.Machines.Undecodable.Remove(key, "")
	message := func(kind string) string {
		return "The " + kind + ` cannot be decoded and is not reconciled: spec.drainTimeout: time: invalid duration "soon". ` +
			"Correct the field, for example with kubectl edit; reconciliation goes on by itself"
	}
	want := notes{
		"Warning Undecodable Machine/m: " + message("Machine"), "Warning Undecodable MachineClass/c: " + message("MachineClass"),
		"Warning Undecodable Machine/m: " + message("Machine"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

func TestUndecodableObjectsAreCountedUntilTheyAreGone(t *testing.T) {
	view, registry := objectcache.NewView(), prometheus.NewRegistry()
	u := &undecodable{view: view}
	u.count(registry)
	expect := func(machines, classes string) {
		t.Helper()
		want := `# HELP mcf_undecodable_objects ` + undecodableHelp + `
# TYPE mcf_undecodable_objects gauge
mcf_undecodable_objects{kind="Machine"} ` + machines + `
mcf_undecodable_objects{kind="MachineClass"} ` + classes + `
mcf_undecodable_objects{kind="MachineDeployment"} 0
mcf_undecodable_objects{kind="MachineSet"} 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	expect("0", "0")
	view.Machines.Undecodable.Apply(failure("Machine", "m", "5"), false)
	view.Classes.Undecodable.Apply(failure("MachineClass", "c", "6"), false)
	expect("1", "1")
	view.Machines.Undecodable.Remove(types.NamespacedName{Namespace: "n", Name: "m"}, "")
	expect("0", "1")
}

// The labeler uses metadata, and must not treat a set that cannot be decoded as a missing one.
func TestTheMetadataOfAnUndecodableObjectIsKnown(t *testing.T) {
	view := objectcache.NewView()
	s := &slots{view: view, nodes: objectcache.New[*corev1.Node](), undecodable: &undecodable{view: view}}
	view.Sets.Undecodable.Apply(failure("MachineSet", "s", "5"), false)
	key := types.NamespacedName{Namespace: "n", Name: "s"}
	if found, known := s.known(policy.Set, key); !known || found.GetLabels()[v1alpha1.LabelSlot] != "1" {
		t.Errorf("known: %v (%t), want the set", found, known)
	}
	for _, kind := range []policy.Kind{policy.Deployment, policy.Machine, policy.Node} {
		if found, known := s.known(kind, key); known {
			t.Errorf("%s: %v, want none", kind, found)
		}
	}
}
