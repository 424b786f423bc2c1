package validation

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// validateStrategy checks what belongs to the strategy in effect. Fields of another strategy are
// ignored.
func validateStrategy(spec *v1alpha1.MachineDeploymentSpec, path *field.Path) field.ErrorList {
	strategy := spec.Strategy
	switch strategy.Type {
	case v1alpha1.RecreateMachineDeploymentStrategyType:
		return nil
	case v1alpha1.RollingUpdateMachineDeploymentStrategyType:
		if strategy.RollingUpdate == nil {
			return field.ErrorList{field.Required(path.Child("rollingUpdate"), "type RollingUpdate needs it")}
		}
		return validateLimits(strategy.RollingUpdate.UpdateConfiguration, spec.Replicas, path.Child("rollingUpdate"))
	case v1alpha1.InPlaceUpdateMachineDeploymentStrategyType:
		if strategy.InPlaceUpdate == nil {
			return field.ErrorList{field.Required(path.Child("inPlaceUpdate"), "type InPlaceUpdate needs it")}
		}
		return validateInPlaceUpdate(strategy.InPlaceUpdate, spec.Replicas, path.Child("inPlaceUpdate"))
	case "":
		return validateNoStrategy(strategy, spec.Replicas, path)
	default:
		return field.ErrorList{field.Invalid(path.Child("type"), strategy.Type,
			"strategy type must be one of [InPlaceUpdate Recreate RollingUpdate]")}
	}
}

func validateInPlaceUpdate(update *v1alpha1.InPlaceUpdateMachineDeployment, replicas int32, path *field.Path) field.ErrorList {
	errs := validateLimits(update.UpdateConfiguration, replicas, path)
	switch update.OrchestrationType {
	case v1alpha1.OrchestrationTypeAuto, v1alpha1.OrchestrationTypeManual:
	default:
		errs = append(errs, field.Invalid(path.Child("orchestrationType"), update.OrchestrationType,
			"orchestrationType must be either Auto or Manual"))
	}
	return errs
}

// validateNoStrategy treats an empty type as a RollingUpdate, each of whose limits may be missing.
// MCM rejects an empty type, so that no manifest of MCM's relies on inPlaceUpdate having no effect
// here, and a user who wrote inPlaceUpdate does not expect the VMs to be replaced.
func validateNoStrategy(strategy v1alpha1.MachineDeploymentStrategy, replicas int32, path *field.Path) field.ErrorList {
	if strategy.InPlaceUpdate != nil {
		return field.ErrorList{field.Required(path.Child("type"), "inPlaceUpdate needs type InPlaceUpdate")}
	}
	if strategy.RollingUpdate == nil {
		return nil
	}
	var errs field.ErrorList
	path = path.Child("rollingUpdate")
	if limit := strategy.RollingUpdate.MaxUnavailable; limit != nil {
		errs = append(errs, validateLimit(limit, replicas, path.Child("maxUnavailable"))...)
	}
	if limit := strategy.RollingUpdate.MaxSurge; limit != nil {
		errs = append(errs, validateLimit(limit, replicas, path.Child("maxSurge"))...)
	}
	return errs
}

func validateLimits(limits v1alpha1.UpdateConfiguration, replicas int32, path *field.Path) field.ErrorList {
	errs := validateLimit(limits.MaxUnavailable, replicas, path.Child("maxUnavailable"))
	return append(errs, validateLimit(limits.MaxSurge, replicas, path.Child("maxSurge"))...)
}

// validateLimit requires a number of machines that can be counted. It may be negative, as in MCM;
// it then counts as 0.
func validateLimit(limit *intstr.IntOrString, replicas int32, path *field.Path) field.ErrorList {
	if limit == nil {
		return field.ErrorList{field.Required(path, "must be a number, or a percentage such as 25%")}
	}
	machines, err := intstr.GetScaledValueFromIntOrPercent(limit, int(replicas), true)
	if err != nil {
		return field.ErrorList{field.Invalid(path, limit.String(), "must be a number, or a percentage such as 25%")}
	}
	if machines < math.MinInt32 || machines > MaxReplicas { // a percentage can come to more than 64 bits hold
		return field.ErrorList{field.Invalid(path, limit.String(), fmt.Sprintf("must not be more than %d machines", MaxReplicas))}
	}
	return nil
}
