package scale

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestEventsOfWhatIsRefused: each refusal has an Event, also when there are two in one pass, and
// none is emitted twice.
func TestEventsOfWhatIsRefused(t *testing.T) {
	create, remove := Event{
		Reason: v1alpha1.ReasonFailedCreate, Message: "a quota",
	}, Event{Reason: v1alpha1.ReasonFailedDelete, Message: "a webhook"}
	failure := func(reason string) []v1alpha1.MachineSetCondition {
		return []v1alpha1.MachineSetCondition{{Type: v1alpha1.MachineSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason}}
	}
	refusedCreate, refusedDelete := Done{CreateError: create.Message}, Done{DeleteError: remove.Message}
	both := Done{CreateError: create.Message, DeleteError: remove.Message}
	for _, test := range []struct {
		name   string
		before []v1alpha1.MachineSetCondition
		done   Done
		want   []Event
	}{
		{"nothing is refused", nil, Done{}, nil},
		{"a create is refused", nil, refusedCreate, []Event{create}},
		{"a create is refused again", failure(v1alpha1.ReasonFailedCreate), refusedCreate, nil},
		{"a delete is refused", nil, refusedDelete, []Event{remove}},
		{"a create is refused, and no delete any more", failure(v1alpha1.ReasonFailedDelete), refusedCreate, []Event{create}},
		{"both are refused", nil, both, []Event{create, remove}},
		{"both are refused again", failure(v1alpha1.ReasonFailedCreate), both, nil},
		{"a create is refused, and the delete again", failure(v1alpha1.ReasonFailedDelete), both, []Event{create}},
		{"nothing is refused any more", failure(v1alpha1.ReasonFailedCreate), Done{}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := World{Now: born, Set: labeledSet(), Done: test.done}
			w.Set.Status.Conditions = test.before
			if diff := cmp.Diff(test.want, statusEvents(w, status(w))); diff != "" {
				t.Errorf("Events (-want +got):\n%s", diff)
			}
		})
	}
}
