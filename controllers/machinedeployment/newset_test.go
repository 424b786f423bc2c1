package machinedeployment

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func (b *bench) deployment() *v1alpha1.MachineDeployment {
	b.Helper()
	d := apiserver.Read[v1alpha1.MachineDeployment](b.server, "machinedeployments", "n", "d")
	if d == nil {
		b.Fatal("the deployment is gone")
	}
	return d
}

// mine are the sets whose controller is the deployment.
func (b *bench) mine() (mine []*v1alpha1.MachineSet) {
	d := b.deployment()
	for _, set := range b.sets() {
		if metav1.IsControlledBy(set, d) {
			mine = append(mine, set)
		}
	}
	return mine
}

// TestSetOfAnotherOwnerHasTheName: the new set gets another one, and what is there stays as it is.
func TestSetOfAnotherOwnerHasTheName(t *testing.T) {
	name := ""
	onBench(t, func(b *bench) {
		b.create()
		name = b.mine()[0].Name
	})
	onBench(t, func(b *bench) {
		apiserver.Add(b.server, &v1alpha1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{"other": "set"}},
		})
		b.create()
		mine := b.mine()
		if len(mine) != 1 || mine[0].Name == name || mine[0].Spec.Replicas != 2 {
			t.Fatalf("the deployment's sets are %v, want one of another name than %s", mine, name)
		}
		if count := b.deployment().Status.CollisionCount; count == nil || *count != 1 {
			t.Errorf("the collision count is %v, want 1", count)
		}
		for _, reason := range []string{v1alpha1.EventRolloutStarted, v1alpha1.EventScalingMachineSet} {
			row, _ := v1alpha1.FindEventReason(reason)
			if n := b.reported.Count(row); n != 1 {
				t.Errorf("%s was reported %d times, want once: the set of the other name was not created", reason, n)
			}
		}
		foreign := apiserver.Read[v1alpha1.MachineSet](b.server, "machinesets", "n", name)
		if foreign == nil || len(foreign.OwnerReferences) > 0 || len(foreign.Finalizers) > 0 || foreign.Spec.Replicas != 0 {
			t.Errorf("the other set is now %+v", foreign)
		}
		b.patch(`{"metadata":{"annotations":{"touched":"yes"}}}`)
		b.pass(time.Minute)
		if mine := b.mine(); len(mine) != 1 || *b.deployment().Status.CollisionCount != 1 {
			t.Errorf("later there are %d sets, and the count is %d", len(mine), *b.deployment().Status.CollisionCount)
		}
	})
}

// drift has another client change the label by which the deployment selects its set.
func (b *bench) drift() {
	b.Helper()
	name := b.mine()[0].Name
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"drifted"}}}`, v1alpha1.LabelName)
	if _, err := b.server.Machines().MachineSets("n").Patch(b.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	b.pass(time.Minute)
}

// TestSetsThatDriftAreReplacedAFewTimes: each of them keeps its machines. When the released sets
// are deleted, or the template changes, a new one is created.
func TestSetsThatDriftAreReplacedAFewTimes(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		for len(b.mine()) > 0 && len(b.sets()) < 20 {
			b.drift()
		}
		if n := len(b.sets()); n != 1+mostReplaced {
			t.Fatalf("%d sets, want %d", n, 1+mostReplaced)
		}
		is := machinefacts.MachineDeploymentCondition(&b.deployment().Status, v1alpha1.MachineDeploymentProgressing)
		if is == nil || is.Reason != v1alpha1.ReasonMachineSetCreateError || !strings.Contains(is.Message, "has released 3 MachineSets") {
			t.Errorf("condition %+v, want one with the number of released sets", is)
		}
		b.pass(time.Hour)
		if n := len(b.sets()); n != 1+mostReplaced {
			t.Fatalf("%d sets after an hour, want %d", n, 1+mostReplaced)
		}
		b.patch(`{"spec":{"template":{"metadata":{"annotations":{"template":"b"}}}}}`)
		b.pass(time.Minute)
		if n := len(b.mine()); n != 1 {
			t.Errorf("%d sets of another template, want 1", n)
		}
	})
}

// mostReplaced is how many sets are created in the place of those that were released.
const mostReplaced = 2

// TestSetOfAnUnansweredCreateIsFound: the new set is found under its name.
func TestSetOfAnUnansweredCreateIsFound(t *testing.T) {
	onBench(t, func(b *bench) {
		lost := 0
		b.server.Lose(func(r apiserver.Request) error {
			if r.Verb != "create" || r.Resource != "machinesets" || lost > 0 {
				return nil
			}
			lost++
			return errors.New("the connection is closed")
		})
		b.create()
		b.pass(time.Minute)
		if mine := b.mine(); lost != 1 || len(b.sets()) != 1 || len(mine) != 1 || mine[0].Spec.Replicas != 2 {
			t.Errorf("%d answers were lost; there are %d sets, the deployment's are %v", lost, len(b.sets()), mine)
		}
		if count := b.deployment().Status.CollisionCount; count != nil {
			t.Errorf("the collision count is %d", *count)
		}
	})
}

// TestEarlierCreateThatTakesEffectIsNoCollision: an earlier request takes effect at the
// moment of the creation.
func TestEarlierCreateThatTakesEffectIsNoCollision(t *testing.T) {
	twice := 0
	onBench(t, func(b *bench) {
		b.create()
		if mine := b.mine(); twice != 1 || len(b.sets()) != 1 || len(mine) != 1 || mine[0].Spec.Replicas != 2 {
			t.Errorf("%d requests came twice; there are %d sets, the deployment's are %v", twice, len(b.sets()), mine)
		}
		if count := b.deployment().Status.CollisionCount; count != nil {
			t.Errorf("the collision count is %d", *count)
		}
	}, func(b *bench, cfg *Config) {
		cfg.Machines = b.server.Via(func(r apiserver.Request, send func() error) error {
			if r.Verb == "create" && r.Resource == "machinesets" && twice == 0 {
				twice++
				if err := send(); err != nil {
					return err
				}
			}
			return send()
		}).Machines
	})
}

// TestSetsAreListedLiveOnce: that the cache shows the set which was just created suffices to scale
// it up.
func TestSetsAreListedLiveOnce(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		before := b.server.Count("list machinesets")
		b.patch(`{"spec":{"replicas":3}}`)
		b.pass(time.Minute)
		if mine := b.mine(); len(mine) != 1 || mine[0].Spec.Replicas != 3 {
			t.Fatalf("the deployment's sets are %v, want one of 3", mine)
		}
		if after := b.server.Count("list machinesets"); before == 0 || after != before {
			t.Errorf("the sets were listed %d times before the one is scaled up, and %d times with that", before, after)
		}
	})
}

// TestSees has sets that were found live, or created, and what the cache shows of them.
func TestSees(t *testing.T) {
	sets := func(uids ...types.UID) (sets []*v1alpha1.MachineSet) {
		for _, uid := range uids {
			sets = append(sets, &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		}
		return sets
	}
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{UID: "d"}}
	c := &Controller{}
	check := func(step string, want bool, shown ...types.UID) {
		t.Helper()
		if got := c.sees(d.UID, sets(shown...)); got != want {
			t.Errorf("%s: all that there is is shown: %v, want %v", step, got, want)
		}
	}
	c.recordCreated(d.UID, "a")
	check("the API server was not read", false, "a")
	c.recordLive(d.UID, map[types.UID]bool{"a": true, "b": true}, sets("a"))
	check("one is missing", false, "a")
	check("both are there", true, "a", "b")
	c.recordCreated(d.UID, "c")
	check("one was created", false, "a", "b")
	check("and is shown", true, "a", "b", "c")
	check("one has gone, which was seen", true, "a", "c")
	c.recordLive(d.UID, map[types.UID]bool{"c": true}, sets("a", "c"))
	check("the cache shows one that has gone", false, "a", "c")
}

// TestWhatConcernsASet: its own controller is asked when the size changes, and when a rollout
// begins or ends.
func TestWhatConcernsASet(t *testing.T) {
	set := func(replicas int32, rolling, other string) *v1alpha1.MachineSet {
		return &v1alpha1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationRolling: rolling, "other": other}},
			Spec:       v1alpha1.MachineSetSpec{Replicas: replicas},
		}
	}
	before := set(2, v1alpha1.RollingTrue, "a")
	for name, tc := range map[string]struct {
		after *v1alpha1.MachineSet
		want  bool
	}{
		"as before":      {set(2, v1alpha1.RollingTrue, "a"), false},
		"something else": {set(2, v1alpha1.RollingTrue, "b"), false},
		"the size":       {set(3, v1alpha1.RollingTrue, "a"), true},
		"the end":        {set(2, v1alpha1.RollingFalse, "a"), true},
	} {
		if got := concerns(before, tc.after); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
