package brake

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestWhatAMachineCountsAs(t *testing.T) {
	ready, notReady := Count{Ready: 1}, Count{NotReady: 1}
	phase := func(phase v1alpha1.MachinePhase, op v1alpha1.MachineOperationType) *v1alpha1.Machine {
		m := &v1alpha1.Machine{}
		m.Status.CurrentStatus.Phase, m.Status.LastOperation.Type = phase, op
		return m
	}
	preserved := phase(v1alpha1.MachineFailed, v1alpha1.MachineOperationHealthCheck)
	preserved.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: start}
	deleted := phase(v1alpha1.MachineUnknown, v1alpha1.MachineOperationHealthCheck)
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	for name, tc := range map[string]struct {
		machine *v1alpha1.Machine
		want    Count
	}{
		"it runs":                               {phase(v1alpha1.MachineRunning, v1alpha1.MachineOperationCreate), ready},
		"it is unhealthy":                       {phase(v1alpha1.MachineUnknown, v1alpha1.MachineOperationHealthCheck), notReady},
		"it is given up for its health":         {phase(v1alpha1.MachineFailed, v1alpha1.MachineOperationHealthCheck), notReady},
		"it never came up":                      {phase(v1alpha1.MachineFailed, v1alpha1.MachineOperationCreate), Count{}},
		"it is coming up":                       {phase(v1alpha1.MachinePending, v1alpha1.MachineOperationCreate), Count{}},
		"it is updated in place":                {phase(v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineOperationInPlaceUpdate), Count{}},
		"it was updated in place, and restarts": {phase(v1alpha1.MachineInPlaceUpdateSuccessful, v1alpha1.MachineOperationInPlaceUpdate), Count{}},
		"it could not be updated in place":      {phase(v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.MachineOperationInPlaceUpdate), notReady},
		"it has failed and is preserved":        {preserved, Count{}},
		"it is being deleted":                   {deleted, Count{}},
	} {
		if got := Of(tc.machine); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
