package machinesim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

func newDice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// act simulates the actions of users in the middle of a rollout.
func (r *rolling) act() {
	d := r.deployment()
	switch r.dice.IntN(8) {
	case 0, 1:
		template := string(rune('a' + r.dice.IntN(3)))
		r.note("the user sets template %s", template)
		r.user(func(s *v1alpha1.MachineDeploymentSpec) {
			s.Template.Annotations = map[string]string{"template": template}
		})
	case 2:
		r.note("the user pauses it, or resumes it")
		r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = !s.Paused })
	case 3:
		if d.Spec.RollbackTo == nil {
			r.note("the user sets the template before")
			r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.RollbackTo = &v1alpha1.RollbackConfig{} })
		}
	case 4:
		sets := sorted(r.sets.now())
		r.freeze(sets[r.dice.IntN(len(sets))], r.dice.IntN(2) == 0)
	case 5:
		if machines := sorted(r.machines.now()); len(machines) > 0 {
			r.preserve(machines[r.dice.IntN(len(machines))], r.dice.IntN(3) > 0)
		}
	}
}

// preserve has a machine preserved when it has failed, or ends that.
func (r *rolling) preserve(m *v1alpha1.Machine, kept bool) {
	r.note("%s is preserved: %v", m.Name, kept)
	m = m.DeepCopy()
	delete(m.Annotations, v1alpha1.AnnotationPreserve)
	if kept {
		m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.PreserveWhenFailed
	}
	r.machines.update(m)
}

// freeze freezes a set, or unfreezes it.
func (r *rolling) freeze(set *v1alpha1.MachineSet, frozen bool) {
	r.note("%s is frozen: %v", set.Name, frozen)
	set = set.DeepCopy()
	delete(set.Labels, v1alpha1.LabelFreeze)
	if frozen {
		set.Labels[v1alpha1.LabelFreeze] = "True"
	}
	r.sets.update(set)
}

// TestRolloutsUnderFaults: with any actions of users during a rollout, when processes die, slots
// move, caches lag and writes are late, there are never too few machines nor too many, and in the
// end all are of the last wanted template.
func TestRolloutsUnderFaults(t *testing.T) {
	recreate := v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}
	strategies := []v1alpha1.MachineDeploymentStrategy{
		rollingUpdate("1", "0"), rollingUpdate("0", "1"), rollingUpdate("2", "1"), rollingUpdate("50%", "50%"), rollingUpdate("3", "0"), recreate,
		{},
	}
	underFaults(t, strategies, 150, 90*time.Minute, func(*rolling) {})
}

// underFaults runs a rollout of one of the strategies under faults, with at most that many turns
// between the actions of users. When all faults have ended it is done within some time, with the
// expected result.
func underFaults(t *testing.T, strategies []v1alpha1.MachineDeploymentStrategy, turns int, ends time.Duration, check func(*rolling)) {
	t.Helper()
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		dice := newDice(seed * 7919)
		strategy := strategies[dice.IntN(len(strategies))]
		resizes := dice.IntN(3) == 0
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newRolling(t, seed, strategy, int32(1+dice.IntN(6)))
			r.predicts, r.sick = dice.IntN(2) == 0, !r.inPlace && dice.IntN(3) == 0
			r.mortal = r.sick && dice.IntN(2) == 0
			r.user(useTemplate("b"))
			for range dice.IntN(6) {
				r.storm(dice.IntN(turns))
				r.act()
				if resizes && r.dice.IntN(3) == 0 {
					replicas := int32(r.dice.IntN(8))
					r.note("the user sets %d", replicas)
					r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas = replicas })
				}
			}
			r.storm(300)
			r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = false })
			for _, set := range sorted(r.sets.now()) {
				r.freeze(set, false)
			}
			for _, m := range sorted(r.machines.now()) {
				r.preserve(m, false)
			}
			r.withoutFaults(ends)
			r.mustBeDone()
			check(r)
		})
	}
}

// TestDeletedInTheMiddleOfARollout: in all cases nothing is left in the end.
func TestDeletedInTheMiddleOfARollout(t *testing.T) {
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newRolling(t, seed, rollingUpdate("1", "1"), 4)
			r.predicts = seed%2 == 0
			r.user(useTemplate("b"))
			r.storm(r.dice.IntN(300))
			r.deleteIt()
			r.storm(300)
			r.withoutFaults(time.Hour)
			r.mustBeGone()
		})
	}
}

// deleteIt makes the user delete the deployment. From then on there is no minimum of machines.
func (r *rolling) deleteIt() {
	r.note("the user deletes it")
	r.steady = false
	r.deployments.delete(r.deployment(), r.now)
}

func (r *rolling) mustBeGone() {
	if n := len(r.deployments.now()) + len(r.sets.now()) + len(r.machines.now()); n > 0 {
		r.Fatalf("seed %d: %d objects are left: %v %v:\n%s", r.seed, n, r.sets.now(), r.machines.now(), r.tale())
	}
}

// TestBrokenTemplate: machines that never become healthy do not make others be deleted, and a
// rollback ends the rollout.
func TestBrokenTemplate(t *testing.T) {
	for i := range worlds.Some(*seeds) {
		seed := *first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newRolling(t, seed, rollingUpdate("2", "1"), 5)
			r.broken["b"] = true
			r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Template.Annotations = map[string]string{"template": "b"} })
			r.storm(300)
			r.withoutFaults(time.Hour)
			c := r.deployment().Status.Conditions
			// There may be 5 + 2, and 5 − 1 have to run: those are old ones, and the other 3 are new ones.
			if got := r.outcome(); got != `replicas 5, template b
Available True MinimumReplicasAvailable
Progressing True MachineSetUpdated
RolloutStalled True MachinesNotAvailable
set of a: size 4, 4 run, 0 others, kept true, tainted true
set of b: size 3, 0 run, 3 others, kept true, tainted false` {
				t.Fatalf("seed %d: after an hour\n%s\n%v", seed, got, c)
			}
			r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.RollbackTo = &v1alpha1.RollbackConfig{} })
			r.storm(300)
			r.withoutFaults(time.Hour)
			r.mustBeDone()
		})
	}
}
