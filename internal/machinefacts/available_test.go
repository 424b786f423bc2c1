package machinefacts

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAvailable(t *testing.T) {
	const none, minute = 0, time.Minute
	for _, tc := range []struct {
		name     string
		phase    v1alpha1.MachinePhase
		age      time.Duration
		deleted  bool
		minReady time.Duration
		want     bool
		in       time.Duration
	}{
		{"runs", v1alpha1.MachineRunning, none, false, none, true, 0},
		{"available, as Machine Controller Manager said once", v1alpha1.MachineAvailable, none, false, none, true, 0},
		{"comes up", v1alpha1.MachinePending, none, false, none, false, 0},
		{"is not Ready", v1alpha1.MachineUnknown, none, false, none, false, 0},
		{"is being deleted", v1alpha1.MachineRunning, none, true, none, false, 0},
		{"not for long enough", v1alpha1.MachineRunning, 20 * time.Second, false, minute, false, 40 * time.Second},
		{"for just long enough", v1alpha1.MachineRunning, minute, false, minute, true, 0},
		{"for long", v1alpha1.MachineRunning, time.Hour, false, minute, true, 0},
		{"by a clock that is ahead", v1alpha1.MachineRunning, -time.Second, false, none, true, 0},
		{"is being deleted, not for long enough", v1alpha1.MachineRunning, none, true, minute, false, 0},
		{"comes up, for long", v1alpha1.MachinePending, time.Hour, false, minute, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &v1alpha1.Machine{}
			m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: tc.phase, LastUpdateTime: metav1.NewTime(now.Add(-tc.age))}
			if tc.deleted {
				m.DeletionTimestamp = &metav1.Time{Time: now}
			}
			if got, in := Available(m, tc.minReady, now); got != tc.want || in != tc.in {
				t.Errorf("available %v, or in %s; want %v, %s", got, in, tc.want, tc.in)
			}
		})
	}
}

func TestMinReady(t *testing.T) {
	set := &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{MinReadySeconds: 500}}
	if counts, not := MinReady(set, true), MinReady(set, false); counts != 500*time.Second || not != 0 {
		t.Errorf("%s where it counts, %s where it does not", counts, not)
	}
}

func TestSooner(t *testing.T) {
	for _, tc := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := Sooner(tc.a, tc.b); got != tc.want {
			t.Errorf("of %d and %d: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
