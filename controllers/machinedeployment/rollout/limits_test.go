package rollout

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestLimits(t *testing.T) {
	percent := func(kind v1alpha1.MachineDeploymentStrategyType, unavailable, surge string) *v1alpha1.MachineDeployment {
		d := deployment(10)
		a, b := intstr.Parse(unavailable), intstr.Parse(surge)
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: kind,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxUnavailable: &a, MaxSurge: &b},
			},
		}
		return d
	}
	const rolling = v1alpha1.RollingUpdateMachineDeploymentStrategyType
	none := deployment(0)
	none.Spec.Strategy = percent(rolling, "3", "2").Spec.Strategy
	for _, tc := range []struct {
		d    *v1alpha1.MachineDeployment
		want limits
	}{
		{deployment(10), limits{10, 1, 0}},
		{percent(rolling, "25%", "25%"), limits{10, 3, 2}}, // 2.5 is rounded up for the surge, down for the missing
		{percent("", "25%", "25%"), limits{10, 3, 2}},
		{percent(rolling, "0", "0"), limits{10, 0, 1}},  // one of them has to move
		{percent(rolling, "5%", "0"), limits{10, 0, 1}}, // 0.5 is rounded down
		{percent(rolling, "100", "0"), limits{10, 0, 10}},
		{percent(rolling, "-1", "-1"), limits{10, 0, 1}}, // stored before it was refused
		{percent(v1alpha1.RecreateMachineDeploymentStrategyType, "5", "5"), limits{10, 0, 0}},
		{none, limits{0, 2, 0}},
	} {
		if got := limitsOf(tc.d); got != tc.want {
			t.Errorf("%+v: %+v, want %+v", tc.d.Spec.Strategy, got, tc.want)
		}
	}
}
