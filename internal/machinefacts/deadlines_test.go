package machinefacts

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestTimeoutsOfTheMachineGoFirst(t *testing.T) {
	own := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	fleet, configured, annotated := &v1alpha1.Machine{}, &v1alpha1.Machine{}, &v1alpha1.Machine{}
	configured.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
		MachineCreationTimeout: own(1), MachineHealthTimeout: own(2), MachineInPlaceUpdateTimeout: own(3), MachinePreserveTimeout: own(4),
	}
	annotated.Spec = *configured.Spec.DeepCopy()
	annotated.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: "9ns"}
	for _, m := range []*v1alpha1.Machine{fleet, configured, annotated} {
		m.CreationTimestamp, m.Status.CurrentStatus = metav1.NewTime(now), v1alpha1.CurrentStatus{
			Phase: v1alpha1.MachineUnknown, LastUpdateTime: metav1.NewTime(now),
		}
	}
	for name, tc := range map[string]struct {
		machine *v1alpha1.Machine
		want    [4]time.Duration // creation, health, update in place, preservation
	}{
		"the fleet's": {fleet, [4]time.Duration{60, 60, 60, 60}}, "the spec's": {configured, [4]time.Duration{1, 2, 3, 4}},
		"the annotation's": {annotated, [4]time.Duration{9, 2, 3, 4}},
	} {
		health, ok := HealthDeadline(tc.machine, 60)
		got := [4]time.Duration{
			CreationDeadline(tc.machine, 60).Sub(now), health.Sub(now), InPlaceUpdateDeadline(tc.machine, 60).Sub(now),
			PreserveTimeout(tc.machine, 60),
		}
		if got != tc.want || !ok {
			t.Errorf("%s: %v, want %v; unhealthy: %v", name, got, tc.want, ok)
		}
	}
}

func TestOnlyAnUnhealthyMachineWithATimeoutHasAHealthDeadline(t *testing.T) {
	disabled := true
	for name, tc := range map[string]struct {
		phase         v1alpha1.MachinePhase
		configuration *v1alpha1.MachineConfiguration
		want          bool
	}{
		"unhealthy":               {v1alpha1.MachineUnknown, nil, true},
		"not updated in place":    {v1alpha1.MachineInPlaceUpdateFailed, nil, true},
		"being updated in place":  {v1alpha1.MachineInPlaceUpdating, nil, false},
		"running":                 {v1alpha1.MachineRunning, nil, false},
		"failed":                  {v1alpha1.MachineFailed, nil, false},
		"the timeout is disabled": {v1alpha1.MachineUnknown, &v1alpha1.MachineConfiguration{DisableHealthTimeout: &disabled}, false},
	} {
		m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{MachineConfiguration: tc.configuration}}
		m.Status.CurrentStatus.Phase = tc.phase
		if _, ok := HealthDeadline(m, time.Minute); ok != tc.want {
			t.Errorf("%s: %v, want %v", name, ok, tc.want)
		}
	}
}

func TestPhases(t *testing.T) {
	type facts struct{ failed, failedHealth, unhealthy, ready bool }
	for phase, want := range map[v1alpha1.MachinePhase]facts{
		"": {}, v1alpha1.MachinePending: {}, v1alpha1.MachineAvailable: {}, v1alpha1.MachineTerminating: {}, v1alpha1.MachineInPlaceUpdating: {},
		v1alpha1.MachineRunning: {ready: true}, v1alpha1.MachineUnknown: {unhealthy: true},
		v1alpha1.MachineInPlaceUpdateFailed: {unhealthy: true},
		v1alpha1.MachineFailed:              {failed: true, failedHealth: true},
	} {
		m := &v1alpha1.Machine{}
		m.Status.CurrentStatus.Phase, m.Status.LastOperation.Type = phase, v1alpha1.MachineOperationHealthCheck
		if got := (facts{HasFailed(m), HasFailedHealth(m), IsUnhealthy(m), IsReady(m)}); got != want {
			t.Errorf("%q: %+v, want %+v", phase, got, want)
		}
		m.Status.LastOperation.Type, m.DeletionTimestamp = v1alpha1.MachineOperationCreate, &metav1.Time{Time: now}
		if HasFailedHealth(m) || IsReady(m) {
			t.Errorf("%q: one that never became a Node has not failed its health, and one that is being deleted is not ready", phase)
		}
	}
}
