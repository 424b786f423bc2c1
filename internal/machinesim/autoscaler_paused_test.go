package machinesim

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Named machines are deleted while a rollout is paused, regardless of their set.
func TestNamedMachinesAreDeletedWhileRolloutIsPaused(t *testing.T) {
	eachAutoscaler(t, func(t *testing.T, seed uint64, generation int) {
		r := newRolling(t, seed, rollingUpdate("1", "0"), int32(5+newDice(seed).IntN(4)))
		r.predicts = seed%2 == 0
		r.user(useTemplate("b"))
		r.withoutFaults(time.Duration(1+r.dice.IntN(8)) * time.Minute)
		r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = true })
		r.withoutFaults(20 * time.Minute)
		a := newAutoscaler(r, generation)
		a.beyond = 1 - (len(r.machines.now()) - int(r.deployment().Spec.Replicas)) // raised replicas include it, as with MCM
		a.keeps = 1                                                                // with 0 replicas there is no surge either
		a.storm(1 + a.dice.IntN(6))
		if remaining := a.standing(); generation > 1 && len(remaining) > 0 || len(remaining) > a.raised {
			t.Fatalf("seed %d: %v were named and not deleted, and the replicas were raised by %d:\n%s", seed, remaining, a.raised, a.tale())
		}
		r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = false })
		r.withoutFaults(90 * time.Minute)
		r.mustBeDone()
	})
}
