package rollout

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// limits are the limits that a rollout has to comply with.
type limits struct {
	// replicas are wanted.
	replicas int32
	// surge is how many machines there may be beyond.
	surge int32
	// unavailable is how many of the replicas may be missing.
	unavailable int32
}

// limitsOf works out the limits of a deployment. Percentages are of the replicas: those of the
// surge are rounded up, those of the missing down. Where both are 0 no rollout could make progress,
// and one machine may be missing. Of 0 replicas none can.
//
//	replicas 10, maxSurge 25 %, maxUnavailable 25 %  →  surge ⌈2.5⌉ = 3, unavailable ⌊2.5⌋ = 2
//	replicas  3, maxSurge  0,   maxUnavailable 10 %  →  surge 0, unavailable ⌊0.3⌋ = 0, and therefore 1
//
// Recreate has no limits: no surge, and none of its replicas should be missing. Where a user
// selects the Nodes that are updated in place there is no surge either: the user decides how many
// are missing at a time, and no machine is created in their place.
func limitsOf(d *v1alpha1.MachineDeployment) limits {
	l := limits{replicas: d.Spec.Replicas}
	configured, limited := limitsInStrategy(d)
	if !limited {
		return l
	}
	surge, unavailable := intstr.FromInt32(0), intstr.FromInt32(0)
	if d.Spec.Strategy.Type == "" {
		surge = intstr.FromInt32(1)
	}
	if configured.MaxSurge != nil {
		surge = *configured.MaxSurge
	}
	if configured.MaxUnavailable != nil {
		unavailable = *configured.MaxUnavailable
	}
	if isManual(d) {
		surge = intstr.FromInt32(0)
	}
	l.surge, l.unavailable = inMachines(surge, l.replicas, true), inMachines(unavailable, l.replicas, false)
	if l.surge == 0 && l.unavailable == 0 {
		l.unavailable = 1
	}
	l.unavailable = min(l.unavailable, l.replicas)
	return l
}

// limitsInStrategy returns the limits in the strategy; limited is false where it has none.
func limitsInStrategy(d *v1alpha1.MachineDeployment) (configured v1alpha1.UpdateConfiguration, limited bool) {
	switch strategy := d.Spec.Strategy; {
	case IsInPlace(d) && strategy.InPlaceUpdate != nil:
		configured = strategy.InPlaceUpdate.UpdateConfiguration
	case isRolling(d) && strategy.RollingUpdate != nil:
		configured = strategy.RollingUpdate.UpdateConfiguration
	}
	return configured, IsInPlace(d) || isRolling(d)
}

// Limits are how many machines a rolling update of the deployment may have beyond the replicas, and
// how many of those may be missing; ok is false where machines are replaced in another way.
func Limits(d *v1alpha1.MachineDeployment) (surge, unavailable int32, ok bool) {
	l := limitsOf(d)
	return l.surge, l.unavailable, isRolling(d)
}

// Most returns how many machines the MachineSets of the deployment may have together: its replicas
// and the surge.
func Most(d *v1alpha1.MachineDeployment) int { return int(limitsOf(d).most()) }

// isRolling reports whether machines are replaced step by step, as they are where the strategy has
// no type.
func isRolling(d *v1alpha1.MachineDeployment) bool {
	return d.Spec.Strategy.Type == "" || d.Spec.Strategy.Type == v1alpha1.RollingUpdateMachineDeploymentStrategyType
}

// IsInPlace reports whether the machines keep their VMs, and an agent on each updates it.
func IsInPlace(d *v1alpha1.MachineDeployment) bool {
	return d.Spec.Strategy.Type == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
}

// isManual reports whether a user selects the Nodes that are updated in place.
func isManual(d *v1alpha1.MachineDeployment) bool {
	update := d.Spec.Strategy.InPlaceUpdate
	return IsInPlace(d) && update != nil && update.OrchestrationType == v1alpha1.OrchestrationTypeManual
}

// isRecreating reports whether all old machines are deleted before new ones are created.
func isRecreating(d *v1alpha1.MachineDeployment) bool {
	return d.Spec.Strategy.Type == v1alpha1.RecreateMachineDeploymentStrategyType
}

// inMachines is a limit as a number of machines. One that is negative, which may be left over from
// MCM, counts as 0.
func inMachines(limit intstr.IntOrString, replicas int32, up bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, int(replicas), up)
	if err != nil {
		return 0 // validation has rejected it
	}
	return int32(max(n, 0))
}

// most is how many machines the sets may have together.
func (l limits) most() int32 {
	if l.replicas == 0 {
		return 0
	}
	return l.replicas + l.surge
}

// least is how many machines have to be available, while some that have failed are preserved.
func (l limits) least(preserved int32) int32 {
	return max(l.replicas-l.unavailable-preserved, 0)
}
