package disruption

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// While deletions are held, no machine that has run gets a disruption or keeps one, and those that
// wait are counted. One that never came up is replaced. A disruption in a frozen set is withdrawn
// when the machine has failed.
func TestHeldDeletions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type machine struct {
		phase  v1alpha1.MachinePhase
		create bool // its last operation is its creation
	}
	running, unhealthy, failed := machine{phase: v1alpha1.MachineRunning},
		machine{phase: v1alpha1.MachineUnknown}, machine{phase: v1alpha1.MachineFailed}
	neverUp := machine{phase: v1alpha1.MachineFailed, create: true}
	for _, tc := range []struct {
		name     string
		replicas int32
		machines []machine
		held     bool
		deleted  bool
		frozen   bool
		waiting  int
		granted  int
	}{
		{"not held", 2, []machine{running, failed}, false, false, false, 0, 1},
		{"nothing waits", 2, []machine{running, running}, true, false, false, 0, 0},
		{"unhealthy and failed ones", 3, []machine{running, unhealthy, failed}, true, false, false, 2, 0},
		{"more than replicas", 1, []machine{running, running, running}, true, false, false, 2, 0},
		{"more than replicas, of which one never ran", 1, []machine{running, running, neverUp}, true, false, false, 1, 1},
		{"one that never ran", 2, []machine{running, neverUp}, true, false, false, 0, 1},
		{"the root is deleted", 2, []machine{running, neverUp, running}, true, true, false, 2, 1},
		{"frozen", 3, []machine{unhealthy, failed, neverUp}, false, false, true, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}}
			set.Spec.Replicas = tc.replicas
			set.Labels = map[string]string{v1alpha1.LabelFreeze: map[bool]string{true: "True"}[tc.frozen]}
			w := World{
				Now: now, Desired: tc.replicas, Sets: []*v1alpha1.MachineSet{set}, Held: tc.held, Deleted: tc.deleted,
				Breakers: Snapshot{Complete: true},
				Limits:   Limits{HealthTimeout: 10 * time.Minute, Budget: intstr.FromInt32(10), Thresholds: DefaultThresholds()},
			}
			for i, is := range tc.machines {
				m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), UID: types.UID(rune('a' + i))}}
				m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
				m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: is.phase, LastUpdateTime: metav1.NewTime(now.Add(-time.Hour))}
				m.Status.LastOperation.Type = v1alpha1.MachineOperationHealthCheck
				if is.create {
					m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
				}
				w.Machines = append(w.Machines, Member{Machine: m})
			}
			if v := Decide(w); v.Waiting != tc.waiting || len(v.Disruptions) != tc.granted {
				t.Errorf("%d wait and %d have a disruption, want %d and %d", v.Waiting, len(v.Disruptions), tc.waiting, tc.granted)
			}
			for _, member := range w.Machines {
				w.Disruptions = append(w.Disruptions, disruptionOf(member.Machine))
			}
			if v := Decide(w); len(v.Disruptions) != tc.granted {
				t.Errorf("%d keep the disruption that they had, want %d", len(v.Disruptions), tc.granted)
			}
		})
	}
}
