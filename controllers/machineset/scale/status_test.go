package scale

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// counts are the numbers of a status.
type counts struct{ All, Labeled, Ready, Available, Preserved, Auto int32 }

func countsOf(s v1alpha1.MachineSetStatus) counts {
	return counts{
		s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, s.PreservedFailedReplicas, s.AutoPreserveFailedMachineCount,
	}
}

// labeledSet selects less than its template gives to its machines.
func labeledSet() *v1alpha1.MachineSet {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	set.Spec.Template.Labels = map[string]string{"a": "b", "c": "d"}
	return set
}

// labeled is a machine with the labels of labeledSet's template.
func labeled(name string, phase v1alpha1.MachinePhase, changes ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b", "c": "d"}}}
	m.Status.CurrentStatus.Phase = phase
	for _, change := range changes {
		change(m)
	}
	return m
}

func ending(m *v1alpha1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: born} }

func unlabeled(m *v1alpha1.Machine) { delete(m.Labels, "c") }

func kept(m *v1alpha1.Machine) { until(m, time.Hour) }

func overdue(m *v1alpha1.Machine) { until(m, -time.Second) }

func preservedAutomatically(m *v1alpha1.Machine) { m.Annotations = saying(v1alpha1.PreserveAuto) }

// TestCounts: what each machine counts for, alone and together. No two of all counts are equal.
func TestCounts(t *testing.T) {
	var all []*v1alpha1.Machine
	for _, tc := range []struct {
		name    string
		machine *v1alpha1.Machine
		want    counts
	}{
		{"no phase", labeled("1", ""), counts{All: 1, Labeled: 1}},
		{"pending", labeled("2", v1alpha1.MachinePending), counts{All: 1, Labeled: 1}},
		{"available", labeled("3", v1alpha1.MachineAvailable), counts{All: 1, Labeled: 1, Available: 1}},
		{"running", labeled("4", v1alpha1.MachineRunning), counts{All: 1, Labeled: 1, Ready: 1, Available: 1}},
		{"running, with other labels", labeled("5", v1alpha1.MachineRunning, unlabeled), counts{All: 1, Ready: 1, Available: 1}},
		{"running, and preserved", labeled("6", v1alpha1.MachineRunning, kept), counts{All: 1, Labeled: 1, Ready: 1, Available: 1}},
		{"running, and ends", labeled("7", v1alpha1.MachineRunning, ending), counts{All: 1, Labeled: 1}},
		{"unknown", labeled("8", v1alpha1.MachineUnknown), counts{All: 1, Labeled: 1}},
		{"failed", labeled("9", v1alpha1.MachineFailed), counts{All: 1, Labeled: 1}},
		{"failed, and preserved", labeled("10", v1alpha1.MachineFailed, kept), counts{All: 1, Labeled: 1, Preserved: 1}},
		{"failed, and preserved unasked", labeled("11", v1alpha1.MachineFailed, kept, preservedAutomatically), counts{
			All: 1, Labeled: 1, Preserved: 1, Auto: 1,
		}},
		{
			"failed, and to be preserved unasked", labeled("12", v1alpha1.MachineFailed, preservedAutomatically),
			counts{All: 1, Labeled: 1, Auto: 1},
		},
		{
			"failed, preserved unasked, and ends", labeled("13", v1alpha1.MachineFailed, kept, preservedAutomatically, ending),
			counts{All: 1, Labeled: 1},
		},
		{"failed, and preserved, with other labels", labeled("14", v1alpha1.MachineFailed, kept, unlabeled), counts{All: 1, Preserved: 1}},
		{"failed, and the time of its preservation is over", labeled("15", v1alpha1.MachineFailed, overdue), counts{All: 1, Labeled: 1}},
		{"available, with other labels", labeled("16", v1alpha1.MachineAvailable, unlabeled), counts{All: 1, Available: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := countsOf(status(World{Now: born, Set: labeledSet(), Owned: []*v1alpha1.Machine{tc.machine}}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
		all = append(all, tc.machine)
	}
	set := labeledSet()
	set.Status = v1alpha1.MachineSetStatus{ // of a pass before, of which nothing may be left
		Replicas: 50, FullyLabeledReplicas: 50, ReadyReplicas: 50, AvailableReplicas: 50, PreservedFailedReplicas: 50,
		AutoPreserveFailedMachineCount: 50,
	}
	want := counts{All: 16, Labeled: 13, Ready: 3, Available: 5, Preserved: 3, Auto: 2}
	if diff := cmp.Diff(want, countsOf(status(World{Now: born, Set: set, Owned: all}))); diff != "" {
		t.Errorf("counts of all (-want +got):\n%s", diff)
	}
}

// TestFailedMachines: the status lists the machines whose last operation has failed, in each phase,
// in the order of their names. Preserved ones are left out: they are known.
func TestFailedMachines(t *testing.T) {
	after := func(kind v1alpha1.MachineOperationType, state v1alpha1.MachineState) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) {
			m.Spec.ProviderID = "cloud://" + m.Name
			m.Status.LastOperation = v1alpha1.LastOperation{Type: kind, State: state, ErrorCode: "Code of " + m.Name, Description: "why"}
		}
	}
	const create, remove = v1alpha1.MachineOperationCreate, v1alpha1.MachineOperationDelete
	failed := v1alpha1.MachineStateFailed
	w := World{Now: born, Set: labeledSet(), Owned: []*v1alpha1.Machine{
		labeled("e", v1alpha1.MachineTerminating, ending, after(remove, failed)),
		labeled("d", v1alpha1.MachineFailed, kept, after(create, failed)),
		labeled("c", v1alpha1.MachineCrashLoopBackOff, after(create, failed)),
		labeled("b", v1alpha1.MachineRunning, after(create, v1alpha1.MachineStateSuccessful)),
		labeled("a", v1alpha1.MachinePending, after(create, v1alpha1.MachineStateProcessing)),
	}}
	summary := func(m *v1alpha1.Machine) v1alpha1.MachineSummary {
		return v1alpha1.MachineSummary{Name: m.Name, ProviderID: "cloud://" + m.Name, LastOperation: m.Status.LastOperation, OwnerRef: "s"}
	}
	want := &[]v1alpha1.MachineSummary{summary(w.Owned[2]), summary(w.Owned[0])}
	got := status(w)
	if diff := cmp.Diff(want, got.FailedMachines); diff != "" {
		t.Errorf("failedMachines (-want +got):\n%s", diff)
	}
	w.Set.Status, w.Owned = got, w.Owned[3:]
	if got := status(w); got.FailedMachines != nil {
		t.Errorf("nothing fails any more, and failedMachines are %v", *got.FailedMachines)
	}
}

// TestEachFieldIsComputed fails for a new field that no code computes, or whose sources this set
// does not have.
func TestEachFieldIsComputed(t *testing.T) {
	set := labeledSet()
	set.Generation = 7
	failed := labeled("3", v1alpha1.MachineFailed)
	failed.Status.LastOperation = v1alpha1.LastOperation{Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateFailed}
	is := reflect.ValueOf(status(World{Now: born, Set: set, Owned: []*v1alpha1.Machine{
		labeled("1", v1alpha1.MachineRunning), labeled("2", v1alpha1.MachineFailed, kept, preservedAutomatically), failed,
	}}))
	for i := range is.NumField() { // LastOperation is Machine Controller Manager's; nothing writes it
		if name := is.Type().Field(i).Name; is.Field(i).IsZero() && name != "LastOperation" {
			t.Errorf("status.%s is not set: compute it in status.go, from what you add to this test", name)
		}
	}
}

func TestWakeWhenAPreservationEnds(t *testing.T) {
	m := labeled("1", v1alpha1.MachineFailed, kept)
	if got := nextChange(World{Now: born, Set: labeledSet(), Owned: []*v1alpha1.Machine{m}}); got != time.Hour {
		t.Errorf("%s, want %s", got, time.Hour)
	}
}

// TestWaits has what no scenario of TestBalance shows.
func TestWaits(t *testing.T) {
	invalid, delayed, deleted := labeledSet(), labeledSet(), labeledSet()
	invalid.Status.Conditions = []v1alpha1.MachineSetCondition{
		{Type: v1alpha1.MachineSetValid, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSpec},
	}
	delayed.Spec.Replicas = 1
	machinefacts.Intents{Losses: &machinefacts.Losses{Count: 2, Until: metav1.Time{Time: born.Add(time.Minute)}}}.Write(delayed)
	deleted.DeletionTimestamp = &metav1.Time{Time: born}
	left := []*v1alpha1.Machine{labeled("a", v1alpha1.MachineRunning, ending)}
	for _, tc := range []struct {
		want string
		w    World
	}{
		{"", World{Set: labeledSet()}},
		{"a correction by a user", World{Set: invalid}},
		{"the end of a delay of creations", World{Set: delayed}},
		{"machines to be gone", World{Set: deleted, Owned: left}},
		{"", World{Set: deleted}},
	} {
		tc.w.Now = born
		if got := Waits(tc.w, Verdict{Do: Rest}); got != tc.want {
			t.Errorf("the set waits for %q, want %q", got, tc.want)
		}
	}
}

// TestHeld: a set with a controller reports that machines wait for the end of a hold; one without a
// controller leaves its condition to another controller.
func TestHeld(t *testing.T) {
	running, never, moved := labeled("1", v1alpha1.MachineRunning), labeled("2", ""), labeled("3", v1alpha1.MachineRunning)
	moved.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful
	for _, tc := range []struct {
		name     string
		by       string
		replicas int32
		machines []*v1alpha1.Machine
		change   func(*v1alpha1.MachineSet)
		before   bool
		want     bool
	}{
		{name: "too many", by: "annotation x", machines: []*v1alpha1.Machine{running}, want: true},
		{name: "enough", by: "annotation x", replicas: 1, machines: []*v1alpha1.Machine{running}, before: true},
		{name: "too many that never ran", by: "annotation x", machines: []*v1alpha1.Machine{never}},
		{name: "too many that leave the set", by: "annotation x", machines: []*v1alpha1.Machine{moved}},
		{name: "one that is being deleted", by: "annotation x", machines: []*v1alpha1.Machine{labeled("4", v1alpha1.MachineRunning, ending)}},
		{
			name: "the set is being deleted", by: "annotation x", replicas: 1, machines: []*v1alpha1.Machine{running},
			change: func(set *v1alpha1.MachineSet) { set.DeletionTimestamp = &metav1.Time{Time: born} }, want: true,
		},
		{name: "it is not known yet what holds", machines: []*v1alpha1.Machine{running}},
		{name: "it is not known any more what holds", machines: []*v1alpha1.Machine{running}, before: true, want: true},
		{
			name: "no controller", by: "annotation x", machines: []*v1alpha1.Machine{running},
			change: func(set *v1alpha1.MachineSet) { set.OwnerReferences = nil },
		},
		{
			name: "no controller, and no machine that waits", by: "annotation x", before: true,
			change: func(set *v1alpha1.MachineSet) { set.OwnerReferences = nil }, want: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			isController := true
			set := labeledSet()
			set.OwnerReferences, set.Spec.Replicas = []metav1.OwnerReference{{Controller: &isController}}, tc.replicas
			if tc.before {
				machinefacts.SetConditionOfSet(&set.Status, v1alpha1.MachineSetDeletionsHeld,
					machinefacts.Condition{Status: corev1.ConditionTrue}, born)
			}
			if tc.change != nil {
				tc.change(set)
			}
			s := status(World{Now: born, Set: set, Owned: tc.machines, Held: true, HeldBy: tc.by})
			c := machinefacts.MachineSetCondition(&s, v1alpha1.MachineSetDeletionsHeld)
			if (c != nil) != tc.want ||
				c != nil && !tc.before && (c.Reason != v1alpha1.ReasonHoldAnnotation || !strings.Contains(c.Message, tc.by)) {
				t.Errorf("condition %+v, want one: %v", c, tc.want)
			}
		})
	}
}
