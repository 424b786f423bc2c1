package rollout

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// The timeouts of a deployment reach each set that has machines, also those that are being deleted.
// A set without machines keeps those of its revision, which a rollback restores.
func TestTimeoutsReachOldSetsWithMachines(t *testing.T) {
	for _, strategy := range []v1alpha1.MachineDeploymentStrategyType{
		v1alpha1.RollingUpdateMachineDeploymentStrategyType, v1alpha1.RecreateMachineDeploymentStrategyType,
	} {
		st := newStory(t)
		st.w.Deployment.Spec.Strategy.Type = strategy
		for _, set := range []string{
			"empty size=0", "leaving size=0 Terminating", "old size=2 revision=2 Running Running", "b size=1 revision=3 Pending",
		} {
			st.set(strings.Fields(set))
		}
		st.deployment([]string{"revision=3"})
		st.w.Deployment.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: &metav1.Duration{Duration: time.Minute},
		}
		reached := map[string]bool{}
		v := Decide(st.w)
		for v.Do == ReadLive || v.Do == ListSets || v.Do == Save {
			st.do(v)
			v = Decide(st.w)
		}
		for _, set := range v.Sets {
			c := set.Spec.Template.Spec.MachineConfiguration
			reached[set.Name] = c != nil && c.MachineDrainTimeout.Duration == time.Minute
		}
		if v.Do != Update || !reached["d-leaving"] || !reached["d-old"] || !reached["d-b"] || reached["d-empty"] {
			t.Errorf("%s: %s reaches %v", strategy, v.Do, reached)
		}
	}
}
