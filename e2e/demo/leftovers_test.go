package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestRemainingVMs(t *testing.T) {
	remaining, twice := remainingVMs([]cloudapi.Instance{
		{ID: "i-1", Name: "a", State: cloudapi.StateTerminated},
		{ID: "i-2", Name: "b", State: cloudapi.StateStopping},
		{ID: "i-3", Name: "a", State: cloudapi.StateTerminated},
		{ID: "i-4", Name: "a", State: cloudapi.StateRunning},
	})
	if diff := cmp.Diff([]string{"i-2", "i-4"}, remaining); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, twice); diff != "" {
		t.Errorf("twice (-want +got):\n%s", diff)
	}
}

func TestFindings(t *testing.T) {
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n-1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n-2"}}}
	findings := []finding{{Kind: "VMs", Note: "2 were created"}, {Kind: "Nodes", Remaining: names(nodes)}}
	want := []string{"    ✓ no VMs (2 were created)", "    ✗ 2 Nodes"}
	if diff := cmp.Diff(want, verdicts(false, findings)); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if err := anyRemaining(findings); err == nil || err.Error() != "there are Nodes: n-1, n-2" {
		t.Errorf("anyLeft = %v, want the Nodes", err)
	}
	if err := anyRemaining(findings[:1]); err != nil {
		t.Errorf("anyLeft = %v when nothing is left", err)
	}
}

func TestReasons(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct{ got, want string }{
		"a new machine": {machineReason(v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}), "Machine m: new"},
		"a machine that failed": {
			machineReason(v1alpha1.Machine{
				ObjectMeta: metav1.ObjectMeta{Name: "m"},
				Status: v1alpha1.MachineStatus{
					CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineCrashLoopBackOff},
					LastOperation: v1alpha1.LastOperation{Type: "Create", State: "Failed", Description: "no quota", ErrorCode: "ResourceExhausted"},
				},
			}),
			"Machine m: CrashLoopBackOff; Create Failed: no quota (ResourceExhausted)",
		},
		"a silent VM": {vmReason(cloudapi.Instance{ID: "i-1", Name: "m", State: "running"}), "VM i-1 (m, running): nothing on its console"},
		"a VM": {
			vmReason(cloudapi.Instance{ID: "i-1", Name: "m", State: "running", Console: []string{"booted", "no token"}}),
			"VM i-1 (m, running): no token",
		},
		"a pod without a Node": {
			podReason(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", DeletionTimestamp: &now}, Status: corev1.PodStatus{
				Phase:      corev1.PodPending,
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no room"}},
			}}),
			"pod p on no Node: Pending; being deleted; no room",
		},
		"a pod that waits": {
			podReason(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{
				Phase: corev1.PodPending,
				ContainerStatuses: []corev1.ContainerStatus{{
					State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "RunContainerError", Message: "no such command"}},
				}},
			}}),
			"pod p on n: Pending; RunContainerError no such command",
		},
	} {
		if test.got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", name, test.got, test.want)
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "… and 2 more like these"}, atMost(2, []string{"a", "b", "c", "d"})); diff != "" {
		t.Errorf("atMost (-want +got):\n%s", diff)
	}
}
