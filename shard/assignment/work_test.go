package assignment

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// workers is the default of --concurrent-syncs.
const workers = 200

// needed is the number of replicas that an autoscaler derives from the loads of all replicas: what
// the query in docs/operations/scaling.md computes.
func needed(loads ...map[Dimension]float64) float64 {
	sums := map[Dimension]float64{}
	for _, of := range loads {
		for dimension, value := range of {
			sums[dimension] += value
		}
	}
	return slices.Max(slices.Collect(maps.Values(sums)))
}

func TestLoadOf(t *testing.T) {
	for name, c := range map[string]struct {
		work    Work
		workers int
		want    map[Dimension]float64
	}{
		"no work": {
			workers: workers,
			want:    map[Dimension]float64{OfMachines: 0, OfTransitions: 0, OfQueue: 0},
		},
		"what one replica should carry, in each dimension": {
			work: Work{Machines: 4000, Transitions: 150, Overdue: 200}, workers: workers,
			want: map[Dimension]float64{OfMachines: 1, OfTransitions: 1, OfQueue: 1},
		},
		"fewer workers carry fewer transitions, and as many machines": {
			work: Work{Machines: 2000, Transitions: 150, Overdue: 50}, workers: 50,
			want: map[Dimension]float64{OfMachines: 0.5, OfTransitions: 4, OfQueue: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := LoadOf(c.work, CapacityOf(c.workers))
			if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("load (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNeededReplicas(t *testing.T) {
	capacity := CapacityOf(workers)
	for name, c := range map[string]struct {
		work []Work
		want float64
	}{
		"machines at rest":                       {[]Work{{Machines: 2000}, {Machines: 2000}}, 1},
		"500 machines are created":               {[]Work{{Machines: 250, Transitions: 250}, {Machines: 250, Transitions: 250}}, 500.0 / 150},
		"the dimension that needs most decides":  {[]Work{{Machines: 4000, Transitions: 75, Overdue: 20}}, 1},
		"the same machine is not counted twice":  {[]Work{{Machines: 150, Transitions: 150}}, 1},
		"dimensions are summed before the rule":  {[]Work{{Machines: 4000}, {Transitions: 150}}, 1},
		"a replica without slots needs none":     {[]Work{{}, {Machines: 4000}}, 1},
		"keys that wait ask for another replica": {[]Work{{Machines: 100, Overdue: 400}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var loads []map[Dimension]float64
			for _, w := range c.work {
				loads = append(loads, LoadOf(w, capacity))
			}
			if got := needed(loads...); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("needed replicas: %g, want %g", got, c.want)
			}
		})
	}
}

func TestInTransition(t *testing.T) {
	for phase, want := range map[v1alpha1.MachinePhase]bool{
		"": true, v1alpha1.MachinePending: true, v1alpha1.MachineTerminating: true,
		v1alpha1.MachineInPlaceUpdating: true, v1alpha1.MachineInPlaceUpdateSuccessful: true,
		v1alpha1.MachineRunning: false, v1alpha1.MachineAvailable: false, v1alpha1.MachineUnknown: false,
		v1alpha1.MachineFailed: false, v1alpha1.MachineCrashLoopBackOff: false, v1alpha1.MachineInPlaceUpdateFailed: false,
	} {
		m := machineIn(phase)
		if got := InTransition(m); got != want {
			t.Errorf("a machine in phase %q is in transition: %t, want %t", phase, got, want)
		}
		m.DeletionTimestamp = &metav1.Time{}
		if !InTransition(m) {
			t.Errorf("a machine in phase %q that is being deleted is not in transition", phase)
		}
	}
}

// The machines of a slot that is not open are not all known, or another replica may report them.
func TestCountWork(t *testing.T) {
	machines := [][]*v1alpha1.Machine{
		{machineIn(v1alpha1.MachineRunning), machineIn(v1alpha1.MachinePending)},
		{machineIn("")},
		{machineIn(v1alpha1.MachinePending), machineIn(v1alpha1.MachineRunning)},
		nil,
	}
	isOpen := func(slot int) bool { return slot != 2 }
	got := CountWork(len(machines), isOpen, func(slot int) []*v1alpha1.Machine { return machines[slot] }, 7)
	if diff := cmp.Diff(Work{Slots: 3, Machines: 3, Transitions: 2, Overdue: 7}, got); diff != "" {
		t.Errorf("work (-want +got):\n%s", diff)
	}
}

func machineIn(phase v1alpha1.MachinePhase) *v1alpha1.Machine {
	m := &v1alpha1.Machine{}
	m.Status.CurrentStatus.Phase = phase
	return m
}

// replicaWorks is a fleet: the work of each slot, and which replica holds it.
type replicaWorks struct {
	slots  []Work
	holder []int
}

func drawWork(t *rapid.T) replicaWorks {
	w := replicaWorks{slots: make([]Work, rapid.IntRange(1, 32).Draw(t, "slots"))}
	for i := range w.slots {
		machines := rapid.IntRange(0, 3000).Draw(t, "machines")
		w.slots[i] = Work{
			Machines: machines, Transitions: rapid.IntRange(0, machines).Draw(t, "transitions"), Overdue: rapid.IntRange(0, 500).Draw(t, "overdue"),
		}
		w.holder = append(w.holder, rapid.IntRange(0, 4).Draw(t, "holder"))
	}
	return w
}

// needed returns the replicas that the fleet needs, from what each of its replicas reports.
func (w *replicaWorks) needed() float64 {
	var work [5]Work
	for slot, of := range w.slots {
		r := &work[w.holder[slot]]
		r.Machines, r.Transitions, r.Overdue = r.Machines+of.Machines, r.Transitions+of.Transitions, r.Overdue+of.Overdue
	}
	var loads []map[Dimension]float64
	for _, r := range work {
		loads = append(loads, LoadOf(r, CapacityOf(workers)))
	}
	return needed(loads...)
}

// A hand-over changes what each replica reports, and must not make the autoscaler change the number
// of replicas.
func TestHandOverLeavesTheSumUnchanged(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		w := drawWork(t)
		before := w.needed()
		for range rapid.IntRange(1, 8).Draw(t, "moves") {
			w.holder[rapid.IntRange(0, len(w.slots)-1).Draw(t, "slot")] = rapid.IntRange(0, 4).Draw(t, "to")
		}
		if after := w.needed(); math.Abs(after-before) > 1e-9*max(1, before) {
			t.Fatalf("needed replicas: %g before the hand-over, %g after it", before, after)
		}
	})
}

// A failed scrape, a replica that has just died and slots without a holder leave slots out: they
// must not add replicas.
func TestSlotsThatNoReplicaReportsNeedNone(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		w := drawWork(t)
		part := replicaWorks{slots: w.slots[:rapid.IntRange(0, len(w.slots)).Draw(t, "reported")], holder: w.holder}
		if all, got := w.needed(), part.needed(); got > all*(1+1e-9) {
			t.Fatalf("needed replicas: %g when some slots are missing, %g with all", got, all)
		}
	})
}

func TestMoreWorkNeedsNoFewerReplicas(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		w := drawWork(t)
		before := w.needed()
		more := &w.slots[rapid.IntRange(0, len(w.slots)-1).Draw(t, "slot")]
		more.Machines += rapid.IntRange(0, 1000).Draw(t, "more machines")
		more.Transitions = min(more.Machines, more.Transitions+rapid.IntRange(0, 1000).Draw(t, "more transitions"))
		more.Overdue += rapid.IntRange(0, 1000).Draw(t, "more overdue keys")
		if after := w.needed(); after < before-1e-9*max(1, before) {
			t.Fatalf("needed replicas: %g with less work, %g with more", before, after)
		}
	})
}
