package disruption

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestCountOfAMachine(t *testing.T) {
	ready, notReady := Count{Ready: 1}, Count{NotReady: 1}
	phase := func(phase v1alpha1.MachinePhase, op v1alpha1.MachineOperationType) *v1alpha1.Machine {
		m := &v1alpha1.Machine{}
		m.Status.CurrentStatus.Phase, m.Status.LastOperation.Type = phase, op
		return m
	}
	preserved := phase(v1alpha1.MachineFailed, v1alpha1.MachineOperationHealthCheck)
	preserved.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: start.Add(time.Second)}
	overdue := phase(v1alpha1.MachineFailed, v1alpha1.MachineOperationHealthCheck)
	overdue.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: start}
	deleted := phase(v1alpha1.MachineUnknown, v1alpha1.MachineOperationHealthCheck)
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	for name, tc := range map[string]struct {
		machine       *v1alpha1.Machine
		want, without Count // with a Node that is bound to it, and without
	}{
		"it runs":                       {phase(v1alpha1.MachineRunning, v1alpha1.MachineOperationCreate), ready, Count{}},
		"it is unhealthy":               {phase(v1alpha1.MachineUnknown, v1alpha1.MachineOperationHealthCheck), notReady, notReady},
		"it is given up for its health": {phase(v1alpha1.MachineFailed, v1alpha1.MachineOperationHealthCheck), notReady, notReady},
		"it never came up":              {phase(v1alpha1.MachineFailed, v1alpha1.MachineOperationCreate), Count{}, Count{}},
		"it is coming up":               {phase(v1alpha1.MachinePending, v1alpha1.MachineOperationCreate), Count{}, Count{}},
		"it is updated in place": {
			phase(v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineOperationInPlaceUpdate), Count{}, Count{},
		},
		"it was updated in place, and restarts": {
			phase(v1alpha1.MachineInPlaceUpdateSuccessful, v1alpha1.MachineOperationInPlaceUpdate), Count{}, Count{},
		},
		"it could not be updated in place": {
			phase(v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.MachineOperationInPlaceUpdate), notReady, notReady,
		},
		"it has failed and is preserved": {preserved, Count{}, Count{}},
		"its preservation is over":       {overdue, notReady, notReady},
		"it is being deleted":            {deleted, Count{}, Count{}},
	} {
		if got := Of(tc.machine, true, start); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		if got := Of(tc.machine, false, start); got != tc.without {
			t.Errorf("%s, without a Node: %+v, want %+v", name, got, tc.without)
		}
	}
}

func TestZone(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "eu-west-1a": "eu-west-1a", strings.Repeat("z", 63): strings.Repeat("z", 63),
		strings.Repeat("z", 64): "", strings.Repeat("z", 1<<20): "", "a/b": "", "a\nb": "", "-a": "",
	} {
		if got := Zone(text); got != want {
			t.Errorf("zone %.70q is %q, want %q", text, got, want)
		}
	}
}

func TestForgedDisruptions(t *testing.T) {
	root := func(n int) *v1alpha1.MachineDeployment {
		return &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1alpha1.AnnotationDisruptions: "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]",
		}}}
	}
	if disruptions, err := ReadDisruptions(root(maxDisruptions)); err != nil || len(disruptions) != maxDisruptions {
		t.Errorf("%d disruptions and %v, want %d", len(disruptions), err, maxDisruptions)
	}
	if disruptions, err := ReadDisruptions(root(maxDisruptions + 1)); err == nil || len(disruptions) > 0 {
		t.Errorf("%d disruptions and %v, want an error", len(disruptions), err)
	}
	long := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationDisruptions: strings.Repeat("x", 256<<10)}},
	}
	if _, err := ReadDisruptions(long); err == nil || len(err.Error()) > 1024 {
		t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// Not more disruptions are recorded at a time than can be read again.
func TestDisruptionsOfMachinesThatNeverCameUpAreLimited(t *testing.T) {
	w := World{
		Now: start, Limits: Limits{HealthTimeout: time.Minute, Thresholds: Thresholds{NotReady: 5, Percent: 100}},
		Breakers: Snapshot{Complete: true},
	}
	for i := range maxDisruptions + 5 {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i), UID: types.UID(fmt.Sprint("m", i))}}
		m.Status.CurrentStatus.Phase, m.Status.LastOperation.Type = v1alpha1.MachineFailed, v1alpha1.MachineOperationCreate
		w.Machines = append(w.Machines, Member{Machine: m})
	}
	if v := Decide(w); len(v.Disruptions) != maxDisruptions || !v.Changed {
		t.Errorf("%d disruptions, want %d", len(v.Disruptions), maxDisruptions)
	}
}
