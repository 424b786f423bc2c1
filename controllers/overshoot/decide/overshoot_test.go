package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// byDefault are the default settings of the flags.
var byDefault = Limits{Up: 2, Down: 1}

func TestLimits(t *testing.T) {
	for _, tc := range []struct{ up, down, ordered, high, low int }{
		{2, 1, 10, 12, 11},
		{0, 1, 10, 11, 10}, // a set of its size does not have too many
		{0, 0, 10, 11, 10},
		{2, 0, 10, 12, 11}, // the number at which it is frozen does not end the freeze
		{2, 5, 10, 12, 10}, // its size always does
		{5, 2, 0, 5, 3},
	} {
		l := Limits{Up: tc.up, Down: tc.down}
		if high, low := l.high(tc.ordered), l.low(tc.ordered); high != tc.high || low != tc.low {
			t.Errorf("%+v of %d: high %d and low %d, want %d and %d", l, tc.ordered, high, low, tc.high, tc.low)
		}
	}
}

// state contains what one count reads of a namespace: a set, and the MachineDeployment that it may
// belong to.
type state struct {
	generation int64
	replicas   int32
	machines   []*v1alpha1.Machine
	change     func(set *v1alpha1.MachineSet)
	// most is that of the MachineDeployment; 0 means that there is none.
	most               int
	deploymentReplaced bool
	other              int // machines of another set of it
	released           int // machines that the set has released
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const uid = types.UID("set")

// created are machines of the set with the ordinals from first on, one created each second.
func created(first, count int64, changes ...func(m *v1alpha1.Machine)) (machines []*v1alpha1.Machine) {
	for o := first; o < first+count; o++ {
		m := machineOf("s", uid, machinefacts.Name("s", uid, o), o)
		m.Annotations = map[string]string{v1alpha1.AnnotationOrdinal: fmt.Sprint(o)}
		for _, change := range changes {
			change(m)
		}
		machines = append(machines, m)
	}
	return machines
}

func machineOf(set string, setUID types.UID, name string, second int64) *v1alpha1.Machine {
	isController := true
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(start.Add(time.Duration(second) * time.Second)),
		OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: set, UID: setUID, Controller: &isController}},
	}}
}

// releasedBy is a machine without a controller that a set has released.
func releasedBy(set types.UID, i int) *v1alpha1.Machine {
	name := fmt.Sprintf("released-%d", i)
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{v1alpha1.AnnotationReleasedBy: string(set)},
	}}
}

// foreign are machines that the set has not created itself, one created each second from first on.
func foreign(first, count int64) (machines []*v1alpha1.Machine) {
	for i := first; i < first+count; i++ {
		machines = append(machines, machineOf("s", uid, fmt.Sprintf("foreign-%d", i), i))
	}
	return machines
}

// count returns the Counter of a state.
func (s state) count(before Count) *Counter {
	isController := true
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Name: "s", UID: uid, Generation: s.generation, Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	set.Spec.Replicas = s.replicas
	sets := []*v1alpha1.MachineSet{set}
	var deployments []Deployment
	if s.most > 0 {
		owner := []metav1.OwnerReference{{Kind: "MachineDeployment", Name: "d", UID: "d", Controller: &isController}}
		set.OwnerReferences = owner
		deployments = []Deployment{{UID: "d", Name: "d", Generation: 1, Most: s.most}}
		if s.deploymentReplaced {
			deployments[0].Generation = 2
		}
		other := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other", Generation: 1, OwnerReferences: owner}}
		other.Spec.Replicas = int32(s.other)
		sets = append(sets, other)
	}
	if s.change != nil {
		s.change(set)
	}
	c := NewCounter(before, sets, deployments)
	for _, m := range s.machines {
		c.Add(m)
	}
	for i := range s.released {
		c.Add(releasedBy(uid, i))
	}
	for i := range s.other {
		c.Add(machineOf("other", "other", fmt.Sprintf("of-other-%d", i), 0))
	}
	return c
}

func recordDeletions(set *v1alpha1.MachineSet, machines ...*v1alpha1.Machine) {
	in := machinefacts.Intents{Next: 100}
	for _, m := range machines {
		in.Delete = append(in.Delete, machinefacts.Deletion{Name: m.Name, UID: m.UID})
	}
	in.Write(set)
}

func TestFreezes(t *testing.T) {
	transferred := func(m *v1alpha1.Machine) {
		m.Labels = map[string]string{v1alpha1.LabelUpdateResult: v1alpha1.UpdateResultSuccessful}
	}
	deleted := func(m *v1alpha1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: start} }
	for _, tc := range []struct {
		name          string
		before, after state
		want          string // part of the reason; "" means no freeze
	}{
		{
			"creates beyond its size",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{generation: 1, replicas: 3, machines: created(0, 6)},
			"6 machines for 3 replicas, and has created 1",
		},
		{
			"creates and deletes beyond its size",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{generation: 1, replicas: 3, machines: created(3, 5)},
			"has created 3",
		},
		{
			"has one too many, and creates",
			state{generation: 1, replicas: 3, machines: created(0, 4)},
			state{generation: 1, replicas: 3, machines: created(0, 9)},
			"",
		},
		{
			"had too many, and has one too many",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{generation: 1, replicas: 3, machines: created(2, 4)},
			"",
		},
		{
			"has too many and creates none: its replicas were lowered",
			state{generation: 2, replicas: 3, machines: created(0, 9)},
			state{generation: 2, replicas: 3, machines: created(0, 9)},
			"",
		},
		{
			"deletes slowly",
			state{generation: 2, replicas: 3, machines: created(0, 9)},
			state{generation: 2, replicas: 3, machines: created(0, 6)},
			"",
		},
		{
			"was resized in between",
			state{generation: 2, replicas: 3, machines: created(0, 9)},
			state{generation: 4, replicas: 3, machines: created(0, 12)},
			"",
		},
		{
			"creates what was recorded before its replicas were lowered",
			state{generation: 2, replicas: 3, machines: created(0, 6), change: func(s *v1alpha1.MachineSet) {
				machinefacts.Intents{Next: 10, Create: []int64{6, 7, 8, 9}}.Write(s)
			}},
			state{generation: 2, replicas: 3, machines: created(0, 10)},
			"",
		},
		{
			"too many are recorded for deletion",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{
				generation: 1, replicas: 3, machines: created(0, 6), change: func(s *v1alpha1.MachineSet) { recordDeletions(s, created(0, 3)...) },
			},
			"",
		},
		{
			"releases a third machine",
			state{generation: 1, replicas: 3, machines: created(2, 3), released: 2},
			state{generation: 1, replicas: 3, machines: created(3, 3), released: 3},
			"has released 3 machines that still exist",
		},
		{
			"releases all at once",
			state{generation: 1, replicas: 3, machines: created(0, 3)},
			state{generation: 1, replicas: 3, machines: created(3, 3), released: 3},
			"has created 3 in their place",
		},
		{
			"releases two for inspection",
			state{generation: 1, replicas: 3, machines: created(0, 3)},
			state{generation: 1, replicas: 3, machines: created(2, 3), released: 2},
			"",
		},
		{
			"replaces a failed one while released ones exist",
			state{generation: 1, replicas: 3, machines: created(0, 3), released: 5},
			state{generation: 1, replicas: 3, machines: created(1, 3), released: 5},
			"",
		},
		{
			"releases, and creates none",
			state{generation: 1, replicas: 3, machines: created(0, 3), released: 2},
			state{generation: 1, replicas: 3, machines: created(1, 2), released: 3},
			"",
		},
		{
			"got another selector",
			state{generation: 1, replicas: 3, machines: created(0, 3)},
			state{generation: 2, replicas: 3, machines: created(3, 3), released: 3},
			"",
		},
		{
			"too many are being deleted",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{generation: 1, replicas: 3, machines: append(created(0, 3, deleted), created(3, 3)...)},
			"",
		},
		{
			"too many were transferred to it",
			state{generation: 1, replicas: 3, machines: created(0, 5, transferred)},
			state{generation: 1, replicas: 3, machines: append(created(0, 5, transferred), created(5, 1)...)},
			"",
		},
		{
			"adopts older machines",
			state{generation: 1, replicas: 3, machines: created(10, 5)},
			state{generation: 1, replicas: 3, machines: append(created(10, 5), foreign(0, 3)...)},
			"",
		},
		{
			"gets new machines of another client",
			state{generation: 1, replicas: 3, machines: foreign(0, 5)},
			state{generation: 1, replicas: 3, machines: foreign(0, 6)},
			"has created 1",
		},
		{
			"its intents cannot be read",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{generation: 1, replicas: 3, machines: created(0, 6), change: func(s *v1alpha1.MachineSet) {
				s.Annotations[v1alpha1.AnnotationIntents] = "{"
			}},
			"",
		},
		{
			"is being deleted",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{generation: 1, replicas: 3, machines: created(0, 6), change: func(s *v1alpha1.MachineSet) {
				s.DeletionTimestamp = &metav1.Time{Time: start}
			}},
			"",
		},
		{
			"is frozen by a user",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{
				generation: 1, replicas: 3, machines: created(0, 6), change: func(s *v1alpha1.MachineSet) { s.Labels[v1alpha1.LabelFreeze] = "True" },
			},
			"",
		},
		{
			"is enlarged beyond what its MachineDeployment may have",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 5, other: 3},
			state{generation: 2, replicas: 6, machines: created(0, 6), most: 5, other: 3},
			"MachineDeployment d have 9 machines, and may have 5; this one has created 2",
		},
		{
			"is enlarged, and machines of its MachineDeployment were transferred in place",
			state{generation: 1, replicas: 4, machines: created(0, 4, transferred), most: 5, other: 3},
			state{generation: 2, replicas: 6, machines: append(created(0, 4, transferred), created(4, 2)...), most: 5, other: 3},
			"have 9 machines",
		},
		{
			"is enlarged, and its intents could not be read before",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 5, other: 7, change: func(s *v1alpha1.MachineSet) {
				s.Annotations[v1alpha1.AnnotationIntents] = "{"
			}},
			state{generation: 2, replicas: 6, machines: created(0, 6), most: 5, other: 7},
			"",
		},
		{
			"is enlarged while its MachineDeployment has too many, and creates none",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 5, other: 3},
			state{generation: 2, replicas: 6, machines: created(0, 4), most: 5, other: 3},
			"",
		},
		{
			"replaces machines while its MachineDeployment has too many",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 5, other: 3},
			state{generation: 1, replicas: 4, machines: created(1, 4), most: 5, other: 3},
			"",
		},
		{
			"is enlarged while its MachineDeployment is resized",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 5, other: 3},
			state{generation: 2, replicas: 6, machines: created(0, 6), most: 5, other: 3, deploymentReplaced: true},
			"",
		},
		{
			"is enlarged within what its MachineDeployment may have",
			state{generation: 1, replicas: 2, machines: created(0, 2), most: 5, other: 3},
			state{generation: 2, replicas: 6, machines: created(0, 6), most: 5, other: 3},
			"",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := tc.before.count(Count{})
			if verdicts := first.Decide(byDefault); len(verdicts) > 0 {
				t.Errorf("the first count decides %+v, want nothing", verdicts)
			}
			verdicts := tc.after.count(first.Count()).Decide(byDefault)
			if tc.want == "" {
				if len(verdicts) > 0 {
					t.Errorf("decided %+v, want nothing", verdicts)
				}
				return
			}
			if len(verdicts) != 1 || !verdicts[0].Freeze || verdicts[0].Set.Name != "s" || !strings.Contains(verdicts[0].Why, tc.want) {
				t.Errorf("decided %+v, want a freeze with %q", verdicts, tc.want)
			}
		})
	}
}

func TestFreezeEnds(t *testing.T) {
	frozen := func(set *v1alpha1.MachineSet) { set.Labels[v1alpha1.LabelFreeze] = "True" }
	byFleet := func(set *v1alpha1.MachineSet) {
		frozen(set)
		set.Annotations[v1alpha1.AnnotationOvershooting] = "too many"
	}
	byMCM := func(set *v1alpha1.MachineSet) {
		frozen(set)
		set.Status.Conditions = []v1alpha1.MachineSetCondition{{Type: v1alpha1.MachineSetFrozen, Reason: v1alpha1.ReasonOverShootingReplicaCount}}
	}
	byUser := func(set *v1alpha1.MachineSet) {
		frozen(set)
		set.Status.Conditions = []v1alpha1.MachineSetCondition{{Type: v1alpha1.MachineSetFrozen, Reason: v1alpha1.ReasonFreezeLabel}}
	}
	for _, tc := range []struct {
		name string
		is   state
		want bool
	}{
		{"too many", state{replicas: 3, machines: created(0, 5), change: byFleet}, false},
		{"one more than ordered", state{replicas: 3, machines: created(0, 4), change: byFleet}, true},
		{"frozen by Machine Controller Manager", state{replicas: 3, machines: created(0, 3), change: byMCM}, true},
		{"frozen by a user", state{replicas: 3, machines: created(0, 3), change: byUser}, false},
		{"frozen by a user just now", state{replicas: 3, machines: created(0, 3), change: frozen}, false},
		{"three that it has released exist", state{replicas: 3, machines: created(0, 3), released: 3, change: byFleet}, false},
		{"two that it has released exist", state{replicas: 3, machines: created(0, 2), released: 2, change: byFleet}, true},
		{"its MachineDeployment still has too many", state{replicas: 3, machines: created(0, 3), change: byFleet, most: 5, other: 4}, false},
		{"its MachineDeployment has enough", state{replicas: 3, machines: created(0, 3), change: byFleet, most: 5, other: 3}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			verdicts := tc.is.count(Count{}).Decide(byDefault)
			if got := len(verdicts) == 1 && !verdicts[0].Freeze; got != tc.want || !tc.want && len(verdicts) > 0 {
				t.Errorf("decided %+v, want the end of the freeze: %t", verdicts, tc.want)
			}
		})
	}
}

// TestReleaseThatIsCountedBeforeItsReplacement: a count may meet the moment between a release and
// the creation of another machine.
func TestReleaseThatIsCountedBeforeItsReplacement(t *testing.T) {
	before := state{generation: 1, replicas: 3, machines: created(2, 3), released: 2}.count(Count{}).Count()
	between := state{generation: 1, replicas: 3, machines: created(3, 2), released: 3}
	for range 3 { // the API server may reject the creation for some time
		c := between.count(before)
		if verdicts := c.Decide(byDefault); len(verdicts) > 0 {
			t.Fatalf("decided %+v before a machine was created", verdicts)
		}
		before = c.Count()
	}
	if verdicts := (state{generation: 1, replicas: 3, machines: created(3, 3), released: 3}).count(before).
		Decide(byDefault); len(verdicts) != 1 || !verdicts[0].Freeze {
		t.Errorf("decided %+v, want a freeze", verdicts)
	}
}

// TestEndedFreezeIsNotRepeated: after a user has ended a freeze the same excess does not freeze the
// set again; another machine does.
func TestEndedFreezeIsNotRepeated(t *testing.T) {
	excess := state{generation: 1, replicas: 3, machines: created(0, 8), change: func(set *v1alpha1.MachineSet) {
		set.Labels[v1alpha1.LabelFreeze], set.Annotations[v1alpha1.AnnotationOvershooting] = "True", "too many"
	}}
	before := excess.count(Count{}).Count()
	excess.change = nil
	for range 3 {
		c := excess.count(before)
		if verdicts := c.Decide(byDefault); len(verdicts) > 0 {
			t.Fatalf("decided %+v, want nothing", verdicts)
		}
		before = c.Count()
	}
	excess.machines = created(0, 9)
	if verdicts := excess.count(before).Decide(byDefault); len(verdicts) != 1 || !verdicts[0].Freeze {
		t.Errorf("another machine: decided %+v, want a freeze", verdicts)
	}
}

// TestAllSetsOfANamespaceAreJudged: Machine Controller Manager changes one set in a pass.
func TestAllSetsOfANamespaceAreJudged(t *testing.T) {
	var sets []*v1alpha1.MachineSet
	for _, name := range []string{"c", "a", "b"} {
		sets = append(sets, &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}})
	}
	var before Count
	for round := range int64(2) {
		c := NewCounter(before, sets, nil)
		for _, set := range sets {
			for i := range 2 + round {
				c.Add(machineOf(set.Name, set.UID, fmt.Sprintf("%s-%d", set.Name, i), i))
			}
		}
		var frozen []string
		for _, v := range c.Decide(byDefault) {
			frozen = append(frozen, v.Set.Name)
		}
		if got, want := strings.Join(frozen, " "), map[int64]string{0: "", 1: "a b c"}[round]; got != want {
			t.Errorf("round %d: frozen %q, want %q", round, got, want)
		}
		before = c.Count()
	}
}
