package machinesim

import (
	"fmt"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// TestRolloutOfMachinesThatCannotBeCreated: where the cloud refuses the VMs of one or two
// templates, for a reason that a replacement shares, so that no machine of them becomes Failed, a
// rollout to a template that can be created ends, with every strategy.
func TestRolloutOfMachinesThatCannotBeCreated(t *testing.T) {
	recreate := v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}
	for name, strategy := range map[string]v1alpha1.MachineDeploymentStrategy{
		"rolling, one beyond":            rollingUpdate("1", "0"),
		"rolling, one missing":           rollingUpdate("0", "1"),
		"rolling, two beyond":            rollingUpdate("2", "1"),
		"rolling, half":                  rollingUpdate("50%", "50%"),
		"without a type":                 {},
		"recreate":                       recreate,
		"in place, one beyond":           inPlaceUpdate("1", "0", auto),
		"in place, one missing":          inPlaceUpdate("0", "1", auto),
		"in place, two beyond":           inPlaceUpdate("2", "1", auto),
		"in place, half":                 inPlaceUpdate("50%", "50%", auto),
		"in place, selected by the user": inPlaceUpdate("1", "1", manual),
	} {
		for i := range worlds.Some(*seeds) {
			seed := *first + uint64(i)
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				r := newRolling(t, seed, strategy, int32(1+seed%3))
				r.predicts = seed%2 == 0
				r.refused["a"], r.refused["b"] = true, true
				r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas += int32(r.dice.IntN(4)) })
				r.storm(r.dice.IntN(300))
				if r.dice.IntN(2) == 0 {
					r.user(useTemplate("b"))
					r.storm(r.dice.IntN(300))
				}
				if r.dice.IntN(2) == 0 {
					r.withoutFaults(10 * time.Minute)
				}
				r.user(useTemplate("c"))
				r.storm(r.dice.IntN(300))
				r.withoutFaults(20 * time.Minute)
				for range 10 {
					if r.manual {
						r.userSelects()
					}
					r.withoutFaults(20 * time.Minute)
				}
				r.mustBeDone()
				r.mustBeFree()
			})
		}
	}
}
