package scale

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// rounds of rapid's 100 worlds each.
const rounds = 20

// However stale the caches and wherever processes die, there are never more machines than were
// wanted and never fewer than were wanted and are left, none is created while the set is frozen,
// none that has run is deleted while deletions are held, and in the end there are as many as are
// wanted.
func TestScaling(t *testing.T) {
	worlds.Check(t, rounds, func(t *rapid.T) {
		c := newCluster(t)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 16).Draw(t, "event") {
			case 0, 1:
				c.scale(rapid.IntRange(0, 8).Draw(t, "replicas"))
			case 2, 3, 4, 5:
				c.disturb()
			case 6:
				c.freeze()
			case 7:
				c.moveIn()
			case 8:
				c.accept()
			case 9:
				c.quiet()
			case 10:
				c.hold()
			default:
				c.pass(false)
			}
		}
		c.settle()
	})
}

// settle ends all disturbance, and checks the final state of the set.
func (c *cluster) settle() {
	c.dying = false
	if c.held {
		c.hold()
	}
	if machinefacts.CreatesNone(c.set()) {
		c.freeze()
	}
	c.quiet()
	c.accept()
	c.quiet()
	if got, _ := c.standing(); got != int(c.set().Spec.Replicas) {
		c.t.Fatalf("%d machines stand and %d are wanted; intents %s", got, c.set().Spec.Replicas, c.set().Annotations[v1alpha1.AnnotationIntents])
	}
	for _, m := range c.machines() {
		if isChosen(&m.ObjectMeta, chosenUntil(c.set())) {
			c.t.Fatalf("machine %s was chosen to go, and stays", m.Name)
		}
	}
	in, err := machinefacts.ReadIntents(c.set())
	if err != nil || !settled(in) {
		c.t.Fatalf("all is quiet and intents are left: %+v, %v", in, err)
	}
	if got := c.set().Status.Replicas; got != c.set().Spec.Replicas {
		c.t.Fatalf("status.replicas is %d and %d are there", got, c.set().Spec.Replicas)
	}
	now := metav1.NewTime(born)
	c.changeSet(func(set *v1alpha1.MachineSet) { set.DeletionTimestamp = &now })
	c.fewest = 0
	c.quiet()
	if c.set() != nil {
		c.t.Fatalf("the set is not released, %d machines are left", len(c.machines()))
	}
}

// Which machines are deleted depends on the annotations that were written before the replicas,
// however late the caches are, and wherever processes die.
func TestTheSameMachinesAreDeletedInEveryInterleaving(t *testing.T) {
	worlds.Check(t, rounds/4, func(t *rapid.T) {
		c := newCluster(t)
		c.dying = false
		c.scale(rapid.IntRange(1, 8).Draw(t, "replicas"))
		c.quiet()
		for _, uid := range slices.Sorted(maps.Keys(c.machines())) {
			phases := []v1alpha1.MachinePhase{"", v1alpha1.MachinePending, v1alpha1.MachineUnknown, v1alpha1.MachineRunning}
			c.changeMachine(uid, func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = rapid.SampledFrom(phases).Draw(t, "phase") })
		}
		c.quiet()
		c.dying = true
		for _, uid := range slices.Sorted(maps.Keys(c.machines())) {
			c.say(uid)
			if rapid.Bool().Draw(t, "pass") {
				c.pass(false)
			}
		}
		want := c.survivors(rapid.IntRange(0, len(c.machines())).Draw(t, "fewer"))
		c.scale(len(want))
		for range rapid.IntRange(0, 10).Draw(t, "passes") {
			c.pass(false)
		}
		c.quiet()
		if got := slices.Sorted(maps.Keys(c.machines())); !slices.Equal(got, want) {
			t.Fatalf("%v are left, want %v", got, want)
		}
	})
}

// say writes an annotation that changes the order of deletion.
func (c *cluster) say(uid types.UID) {
	c.changeMachine(uid, func(m *v1alpha1.Machine) {
		m.Annotations[v1alpha1.AnnotationPriority] = rapid.SampledFrom([]string{"1", "3", "x", "7"}).Draw(c.t, "priority")
		if rapid.Bool().Draw(c.t, "marked") {
			m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] = "2026-01-02T03:00:00Z"
		}
	})
}

// survivors are those that should be left, computed in another way: the last by the rules is
// removed, again and again.
func (c *cluster) survivors(count int) []types.UID {
	remaining := maps.Clone(c.machines())
	priority := map[string]int{"1": 1, "3": 3, "x": 3, "7": 7}
	phase := map[v1alpha1.MachinePhase]int{"": 0, v1alpha1.MachineUnknown: 1, v1alpha1.MachinePending: 2, v1alpha1.MachineRunning: 3}
	worse := func(a, b *v1alpha1.Machine) bool {
		if pa, pb := priority[a.Annotations[v1alpha1.AnnotationPriority]], priority[b.Annotations[v1alpha1.AnnotationPriority]]; pa != pb {
			return pa < pb
		}
		ma, mb := a.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] != "", b.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] != ""
		if ma != mb {
			return ma
		}
		if pa, pb := phase[a.Status.CurrentStatus.Phase], phase[b.Status.CurrentStatus.Phase]; pa != pb {
			return pa < pb
		}
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	for len(remaining) > count {
		var worst *v1alpha1.Machine
		for _, m := range remaining {
			if worst == nil || worse(m, worst) {
				worst = m
			}
		}
		delete(remaining, worst.UID)
	}
	return slices.Sorted(maps.Keys(remaining))
}

// Creates that the API server refuses are taken back when they are not wanted any more.
func TestRefusedCreatesAreWithdrawn(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		c := newCluster(t)
		c.set().Finalizers = []string{v1alpha1.FinalizerName}
		requested, desired := rapid.IntRange(1, 20).Draw(t, "asked"), rapid.IntRange(0, 20).Draw(t, "wanted")
		in := machinefacts.Intents{Next: int64(requested)}
		for o := range requested {
			in.Create = append(in.Create, int64(o))
		}
		in.Write(c.set())
		c.scale(desired)
		w := c.observe(true)
		w.Done.CreateError = "no"
		w.Live = &Live{}
		v := Decide(w)
		if desired == requested {
			if v.Do != Rest {
				t.Fatalf("Do = %s", v.Do)
			}
			return
		}
		out, err := machinefacts.ReadIntents(v.Set)
		if err != nil || v.Do != Save || len(out.Create) != desired || out.Next < in.Next {
			t.Fatalf("Do = %s, intents %+v, %v; %d were asked for and %d are wanted", v.Do, out, err, requested, desired)
		}
	})
}
