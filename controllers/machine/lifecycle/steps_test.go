package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestStepsEnded(t *testing.T) {
	created := time.Unix(1_800_000_000, 0)
	after := created.Add
	machine := func(phase v1alpha1.MachinePhase, since time.Duration) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(after(since))}
		if phase == v1alpha1.MachineTerminating {
			m.DeletionTimestamp = &metav1.Time{Time: after(time.Hour)}
		}
		return m
	}
	now := after(2 * time.Hour)
	for name, tc := range map[string]struct {
		before *v1alpha1.Machine
		reason string
		want   []Took
	}{
		"created": {machine("", 0), v1alpha1.EventCreated, []Took{{StepCreate, 2 * time.Hour}}},
		"created after failures": {
			machine(v1alpha1.MachineCrashLoopBackOff, time.Minute), v1alpha1.EventCreated, []Took{{StepCreate, 2 * time.Hour}},
		},
		"recorded again": {machine(v1alpha1.MachineRunning, time.Minute), v1alpha1.EventCreated, nil},
		"joined": {
			machine(v1alpha1.MachinePending, 90*time.Minute), v1alpha1.EventJoined,
			[]Took{{StepJoin, 30 * time.Minute}, {StepRun, 2 * time.Hour}},
		},
		"joined, and was not awaited": {machine(v1alpha1.MachineUnknown, 0), v1alpha1.EventJoined, nil},
		"healthy again":               {machine(v1alpha1.MachineUnknown, time.Minute), v1alpha1.EventNodeHealthy, nil},
		"drained": {
			machine(v1alpha1.MachineTerminating, 100*time.Minute), v1alpha1.EventDrained, []Took{{StepDrain, 20 * time.Minute}},
		},
		"drained by force": {
			machine(v1alpha1.MachineTerminating, 100*time.Minute), v1alpha1.EventDrainForced, []Took{{StepDrain, 20 * time.Minute}},
		},
		"deleted":                {machine(v1alpha1.MachineTerminating, 100*time.Minute), v1alpha1.EventDeleted, []Took{{StepDelete, time.Hour}}},
		"deleted without a time": {machine(v1alpha1.MachineRunning, 0), v1alpha1.EventDeleted, nil},
		"a clock that is ahead": {
			machine(v1alpha1.MachinePending, 3*time.Hour), v1alpha1.EventJoined, []Took{{StepJoin, 0}, {StepRun, 2 * time.Hour}},
		},
	} {
		if diff := cmp.Diff(tc.want, StepsEnded(tc.before, []Event{{Reason: tc.reason}}, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFailed(t *testing.T) {
	machine := func(phase v1alpha1.MachinePhase, operation v1alpha1.MachineOperationType) *v1alpha1.Machine {
		return &v1alpha1.Machine{Status: v1alpha1.MachineStatus{
			CurrentStatus: v1alpha1.CurrentStatus{Phase: phase}, LastOperation: v1alpha1.LastOperation{Type: operation},
		}}
	}
	for name, tc := range map[string]struct {
		before    v1alpha1.MachinePhase
		after     v1alpha1.MachinePhase
		operation v1alpha1.MachineOperationType
		want      Cause
	}{
		"no VM":        {v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineFailed, v1alpha1.MachineOperationCreate, CauseCreate},
		"not joined":   {v1alpha1.MachinePending, v1alpha1.MachineFailed, v1alpha1.MachineOperationCreate, CauseJoin},
		"unhealthy":    {v1alpha1.MachineUnknown, v1alpha1.MachineFailed, v1alpha1.MachineOperationHealthCheck, CauseHealth},
		"else":         {v1alpha1.MachineRunning, v1alpha1.MachineFailed, v1alpha1.MachineOperationUpdate, CauseOther},
		"still failed": {v1alpha1.MachineFailed, v1alpha1.MachineFailed, v1alpha1.MachineOperationHealthCheck, ""},
		"not failed":   {v1alpha1.MachineRunning, v1alpha1.MachineUnknown, v1alpha1.MachineOperationHealthCheck, ""},
	} {
		cause, ok := Failed(machine(tc.before, ""), machine(tc.after, tc.operation))
		if cause != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q, %t, want %q", name, cause, ok, tc.want)
		}
	}
}

func TestBeforeVM(t *testing.T) {
	in := func(phase v1alpha1.MachinePhase) *v1alpha1.Machine {
		return &v1alpha1.Machine{Status: v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: phase}}}
	}
	drained := []Event{{Reason: v1alpha1.EventDrained}}
	for name, tc := range map[string]struct {
		before v1alpha1.MachinePhase
		events []Event
		want   bool
	}{
		"begins to be deleted": {v1alpha1.MachineRunning, nil, true},
		"drained":              {v1alpha1.MachineTerminating, drained, true},
		"in between":           {v1alpha1.MachineTerminating, nil, false},
	} {
		if got := BeforeVM(in(tc.before), in(v1alpha1.MachineTerminating), tc.events); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
