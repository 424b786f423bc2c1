package session

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// reported records the objects of Events.
type reported []string

// Eventf is events.EventRecorder's.
func (e *reported) Eventf(about, _ runtime.Object, eventtype, reason, _, _ string, _ ...any) {
	if root, ok := about.(*corev1.ObjectReference); ok {
		*e = append(*e, fmt.Sprintf("%s %s: %s/%s", eventtype, reason, root.Kind, root.Name))
	}
}

func TestAReplicaThatIsUnfitIsReportedOnItsSessionLease(t *testing.T) {
	var got reported
	r := &Reporter{Events: &got, Settings: protocol.Settings{Fleet: "fleet", Namespace: "n"}}
	if err := r.ReportUnfit(t.Context(), []Trouble{{Replica: "fleet-1", Event: v1alpha1.EventReplicaUnfit, Message: "blind"}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reported{"Warning ReplicaUnfit: Lease/fleet-session-fleet-1"}, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

func TestRootsOfUnownedSlotsAreReported(t *testing.T) {
	object := func(kind, name, slot string, controller ...string) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{v1alpha1.LabelSlot: slot}},
		}
		for _, name := range controller {
			is := true
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{Name: name, Controller: &is})
		}
		return o
	}
	var got reported
	server := apiserver.Recording(
		object("MachineDeployment", "d", "3"), object("MachineDeployment", "held", "4"),
		object("MachineSet", "d-set", "3", "d"), object("MachineSet", "alone", "3"),
		object("Machine", "d-set-m", "3", "d-set"), object("Machine", "alone", "5"), object("Machine", "held", "33"),
	)
	failures := 100 // of the last list: objects of the other lists do not get the Event repeatedly
	server.Fault(func(r apiserver.Request) error {
		if r.What() != "list machines" {
			return nil
		}
		if failures--; failures >= 0 {
			return errors.New("not now")
		}
		return nil
	})
	r := &Reporter{Metadata: server.Metadata(), Events: &got, Settings: protocol.Settings{Fleet: "fleet", Namespace: "n", Slots: 100}}
	for failures > 0 {
		if err := r.ReportUnowned(t.Context(), []int{3, 5}); err == nil {
			t.Error("the list failed without an error")
		}
	}
	if err := r.ReportUnowned(t.Context(), []int{3, 5}); err != nil {
		t.Fatal(err)
	}
	want := reported{"Warning SlotUnowned: MachineDeployment/d", "Warning SlotUnowned: MachineSet/alone", "Warning SlotUnowned: Machine/alone"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}
