package scale

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestReplicaFailureIsForTheAPIServerOnly: Gardener's health check takes ReplicaFailure for a
// broken MachineDeployment, so the error of a cloud has its own condition.
func TestReplicaFailureIsForTheAPIServerOnly(t *testing.T) {
	failed := func(kind v1alpha1.MachineOperationType) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) {
			m.Status.LastOperation = v1alpha1.LastOperation{
				Type: kind, State: v1alpha1.MachineStateFailed, ErrorCode: "ResourceExhausted", Description: "no quota",
			}
		}
	}
	uncreatable := []*v1alpha1.Machine{
		labeled("b", v1alpha1.MachineCrashLoopBackOff, failed(v1alpha1.MachineOperationCreate)),
		labeled("a", v1alpha1.MachineCrashLoopBackOff, failed(v1alpha1.MachineOperationCreate)),
	}
	const cloud = "MachineCreateFailure=True/MachineCreateFailed: Machine a: ResourceExhausted: no quota"
	for _, tc := range []struct {
		name string
		w    World
		want []string
	}{
		{"nothing fails", World{Owned: []*v1alpha1.Machine{labeled("a", v1alpha1.MachineRunning)}}, nil},
		{"the cloud refuses VMs", World{Owned: uncreatable}, []string{cloud}},
		{
			"the cloud keeps a VM",
			World{Owned: []*v1alpha1.Machine{labeled("a", v1alpha1.MachineTerminating, ending, failed(v1alpha1.MachineOperationDelete))}},
			nil,
		},
		{"the API server refuses a create", World{Done: Done{CreateError: "a webhook"}}, []string{"ReplicaFailure=True/FailedCreate: a webhook"}},
		{"the API server refuses a delete", World{Done: Done{DeleteError: "a webhook"}}, []string{"ReplicaFailure=True/FailedDelete: a webhook"}},
		{"both", World{Owned: uncreatable, Done: Done{CreateError: "a quota"}}, []string{"ReplicaFailure=True/FailedCreate: a quota", cloud}},
		{"a remark", World{Set: dubiousSet()}, []string{"Valid=True/Remarks: spec.minReadySeconds: -1 counts as 0"}},
		{"a remark on the MachineDeployment, too", World{Set: controlled(dubiousSet())}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.w.Now = born
			if tc.w.Set == nil {
				tc.w.Set = labeledSet()
			}
			tc.w.Set.Status.Conditions = []v1alpha1.MachineSetCondition{ // of a pass before, of which nothing may be left
				{Type: v1alpha1.MachineSetReplicaFailure, Status: "True", Reason: "Old"},
				{Type: v1alpha1.MachineSetMachineCreateFailure, Status: "True", Reason: "Old"},
				{Type: v1alpha1.MachineSetValid, Status: "False", Reason: "Old"},
			}
			var got []string
			is := status(tc.w)
			for _, event := range statusEvents(tc.w, is) {
				if event.Reason == v1alpha1.ReasonRemarks {
					t.Errorf("a remark is an Event: %v", event)
				}
			}
			for _, c := range is.Conditions {
				got = append(got, string(c.Type)+"="+string(c.Status)+"/"+c.Reason+": "+c.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func dubiousSet() *v1alpha1.MachineSet {
	set := labeledSet()
	set.Spec.MinReadySeconds = -1
	return set
}

func controlled(set *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	set.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineDeployment", Name: "d", Controller: new(true)}}
	return set
}
