package machinesim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// mostPeriod is the maximum time between two counts. Each period is drawn, so that counts meet
// every moment of a transition.
const mostPeriod = time.Minute

// counting is the leader that counts machines in a rolling world. It reads sizes at one moment and
// machines at a later one.
type counting struct {
	dice   *rand.Rand // its own, so that it changes no other draw
	limits decide.Limits
	before decide.Count
	open   *decide.Counter // has no machines yet; nil while none is counted
	next   time.Time

	read        int // of the history of the sets
	sizes       map[types.UID]int32
	generations map[types.UID]int64
}

func newCounting(seed uint64) *counting {
	return &counting{
		dice: newDice(seed * 31), limits: decide.Limits{Up: 1, Down: 1}, sizes: map[types.UID]int32{}, generations: map[types.UID]int64{},
	}
}

// pass begins a count, or ends it and returns its verdicts.
func (c *counting) pass(r *rolling) []decide.Verdict {
	for ; c.read < len(r.sets.history); c.read++ {
		for _, set := range r.sets.history[c.read] { // the server counts generations
			if size, known := c.sizes[set.UID]; !known || size != set.Spec.Replicas {
				c.sizes[set.UID] = set.Spec.Replicas
				c.generations[set.UID]++
			}
		}
	}
	switch {
	case c.open != nil:
		for _, m := range r.machines.now() {
			c.open.Add(m)
		}
		verdicts := c.open.Decide(c.limits)
		c.before, c.open = c.open.Count(), nil
		return verdicts
	case r.now.Before(c.next):
		return nil
	}
	c.next = r.now.Add(time.Duration(1 + c.dice.Int64N(int64(mostPeriod))))
	var sets []*v1alpha1.MachineSet
	for _, set := range sorted(r.sets.now()) {
		set = set.DeepCopy()
		set.Generation = c.generations[set.UID]
		sets = append(sets, set)
	}
	var deployments []decide.Deployment
	for _, d := range r.deployments.now() {
		deployments = append(deployments, decide.Deployment{UID: d.UID, Name: d.Name, Generation: d.Generation, Most: rollout.Most(d)})
	}
	c.open = decide.NewCounter(c.before, sets, deployments)
	return nil
}

// checkCounts fails if a set would be frozen, which no transition is a reason for.
func (r *rolling) checkCounts() {
	if r.instant || r.counts == nil { // where every order is tried there is no time between two counts
		return
	}
	for _, v := range r.counts.pass(r) {
		if v.Freeze {
			r.Fatalf("seed %d: %s would be frozen: %s, after\n%s", r.seed, v.Set.Name, v.Why, r.tale())
		}
	}
}

// TestSetThatCreatesBeyondItsSizeIsFrozenAndRecovers: a defect creates machines with the next
// ordinals, at any pace. The second count that shows too many freezes the set. When the defect is
// gone the set deletes the excess, and the freeze ends.
func TestSetThatCreatesBeyondItsSizeIsFrozenAndRecovers(t *testing.T) {
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			dice := newDice(seed * 104729)
			r := newRolling(t, seed, rollingUpdate("1", "0"), int32(1+dice.IntN(20)))
			c := newCounting(seed)
			c.limits = decide.Limits{Up: dice.IntN(4), Down: dice.IntN(4)}
			set, high := sorted(r.sets.now())[0], int(r.deployment().Spec.Replicas)+max(c.limits.Up, 1)
			tooMany := 0
			for !machinefacts.IsFrozen(set) {
				before := len(r.machines.now())
				r.createBeyond(set, 1+dice.IntN(3))
				c.count(r)
				if before >= high {
					tooMany++
				}
				if set = r.sets.now()[set.Name]; tooMany > 1 && !machinefacts.IsFrozen(set) {
					t.Fatalf("%d machines for %d replicas, and not frozen", len(r.machines.now()), set.Spec.Replicas)
				}
			}
			if tooMany == 0 {
				t.Fatalf("frozen with %d machines for %d replicas: the first count that shows too many decides nothing",
					len(r.machines.now()), set.Spec.Replicas)
			}
			r.most, r.steady = len(r.machines.now()), false
			r.withoutFaults(20 * time.Minute)
			c.count(r)
			if set = r.sets.now()[set.Name]; machinefacts.IsFrozen(set) || len(r.machines.now()) != int(set.Spec.Replicas) {
				t.Errorf("%d machines for %d replicas, frozen: %t", len(r.machines.now()), set.Spec.Replicas, machinefacts.IsFrozen(set))
			}
		})
	}
}

// createBeyond creates machines, as a controller with a defect does.
func (r *rolling) createBeyond(set *v1alpha1.MachineSet, count int) {
	next := int64(0)
	for _, m := range r.machines.now() {
		if ordinal, ok := machinefacts.OrdinalIn(set, m); ok {
			next = max(next, ordinal+1)
		}
	}
	r.now = r.now.Add(time.Minute)
	w := r.observeSet(set)
	for range count {
		r.owner.create(&w, next)
		next++
	}
}

// count executes one count, and carries out its verdicts.
func (c *counting) count(r *rolling) {
	c.next = r.now
	c.pass(r)
	for _, v := range c.pass(r) {
		set := r.sets.now()[v.Set.Name].DeepCopy()
		delete(set.Labels, v1alpha1.LabelFreeze)
		delete(set.Annotations, v1alpha1.AnnotationOvershooting)
		if v.Freeze {
			set.Labels[v1alpha1.LabelFreeze], set.Annotations[v1alpha1.AnnotationOvershooting] = "True", v.Why
		}
		if _, ok := r.sets.update(set); !ok {
			r.Fatal("the write was rejected")
		}
	}
}
