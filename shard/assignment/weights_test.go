package assignment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestWeights(t *testing.T) {
	machine := func(slot string, phase v1alpha1.MachinePhase) *v1alpha1.Machine {
		m := &v1alpha1.Machine{}
		m.Labels = map[string]string{v1alpha1.LabelSlot: slot}
		m.Status.CurrentStatus.Phase = phase
		return m
	}
	deleted := machine("2", v1alpha1.MachineRunning)
	deleted.DeletionTimestamp = &metav1.Time{}
	machines := []*v1alpha1.Machine{
		machine("1", v1alpha1.MachineRunning), machine("1", v1alpha1.MachineRunning), machine("1", v1alpha1.MachinePending),
		deleted, machine("3", v1alpha1.MachineFailed), machine("5", v1alpha1.MachineRunning), machine("", v1alpha1.MachineRunning),
		{},
	}
	got := Weights(5, func(slot int) bool { return slot < 3 }, machines)
	// Slot 0 is held and empty, slots 3 and 4 are not held any more, and slot 5 is none of the
	// fleet's.
	if diff := cmp.Diff(map[int]int64{0: 0, 1: 2 + changing, 2: changing, 3: unsettled}, got); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
}
