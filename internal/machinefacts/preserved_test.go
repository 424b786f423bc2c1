package machinefacts

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestPreserved(t *testing.T) {
	type facts struct{ preserved, preservedFailed, over, kept bool }
	const none = time.Duration(-1 << 62)
	for name, tc := range map[string]struct {
		phase     v1alpha1.MachinePhase
		in        time.Duration // until the expiry time
		requested string
		deleted   bool
		want      facts
	}{
		"nothing is requested":             {v1alpha1.MachineFailed, none, "", false, facts{}},
		"requested, and not begun":         {v1alpha1.MachineFailed, none, v1alpha1.PreserveWhenFailed, false, facts{kept: true}},
		"requested now, and not begun":     {v1alpha1.MachineFailed, none, v1alpha1.PreserveNow, false, facts{kept: true}},
		"chosen by its set, and not begun": {v1alpha1.MachineFailed, none, v1alpha1.PreserveAuto, false, facts{kept: true}},
		"refused":                          {v1alpha1.MachineFailed, none, v1alpha1.PreserveFalse, false, facts{}},
		"an unknown value":                 {v1alpha1.MachineFailed, none, "always", false, facts{}},
		"failed, before its expiry time": {
			v1alpha1.MachineFailed, time.Second, "", false, facts{preserved: true, preservedFailed: true, kept: true},
		},
		"failed, at its expiry time":            {v1alpha1.MachineFailed, 0, v1alpha1.PreserveNow, false, facts{over: true}},
		"failed, after its expiry time":         {v1alpha1.MachineFailed, -time.Hour, v1alpha1.PreserveWhenFailed, false, facts{over: true}},
		"running, before its expiry time":       {v1alpha1.MachineRunning, time.Second, "", false, facts{preserved: true, kept: true}},
		"being deleted, before its expiry time": {v1alpha1.MachineFailed, time.Second, "", true, facts{kept: true}},
		"the request is void when its time begins": {
			v1alpha1.MachineFailed, time.Second, v1alpha1.PreserveFalse, false, facts{preserved: true, preservedFailed: true, kept: true},
		},
	} {
		m := &v1alpha1.Machine{}
		m.Status.CurrentStatus.Phase = tc.phase
		if tc.in != none {
			m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: now.Add(tc.in)}
		}
		if tc.requested != "" {
			m.Annotations = map[string]string{v1alpha1.AnnotationPreserve: tc.requested}
		}
		if tc.deleted {
			m.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if got := (facts{IsPreserved(m, now), IsPreservedFailed(m, now), IsPreservationOver(m, now), IsKept(m, now)}); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestPreserveValue(t *testing.T) {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.PreserveNow}}}
	if got := PreserveValue(m); got != v1alpha1.PreserveNow {
		t.Errorf("the machine's own value: %q", got)
	}
	m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue] = v1alpha1.PreserveFalse
	if got := PreserveValue(m); got != v1alpha1.PreserveFalse {
		t.Errorf("the value of its Node goes before its own: %q", got)
	}
}

func TestPreservationEnds(t *testing.T) {
	machine := func(phase v1alpha1.MachinePhase, in time.Duration) *v1alpha1.Machine {
		m := &v1alpha1.Machine{}
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, PreserveExpiryTime: &metav1.Time{Time: now.Add(in)}}
		return m
	}
	others := []*v1alpha1.Machine{
		{}, machine(v1alpha1.MachineRunning, time.Second), machine(v1alpha1.MachineFailed, -time.Second), machine(v1alpha1.MachineFailed, 0),
	}
	if got := PreservationEnds(others, now); got != 0 {
		t.Errorf("without a failed machine that is preserved: %s, want 0", got)
	}
	if got := PreservationEnds(append(others, machine(v1alpha1.MachineFailed, time.Hour), machine(v1alpha1.MachineFailed, time.Minute)),
		now); got != time.Minute {
		t.Errorf("%s, want %s", got, time.Minute)
	}
}
