package validation_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

func template() v1alpha1.MachineTemplateSpec {
	return v1alpha1.MachineTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"name": "pool", "tier": "gold"}},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}},
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"name": "pool"}}
}

func limits(maxUnavailable, maxSurge string) v1alpha1.UpdateConfiguration {
	parse := func(text string) *intstr.IntOrString {
		if text == "" {
			return nil
		}
		return new(intstr.Parse(text))
	}
	return v1alpha1.UpdateConfiguration{MaxUnavailable: parse(maxUnavailable), MaxSurge: parse(maxSurge)}
}

func rolling(maxUnavailable, maxSurge string) v1alpha1.MachineDeploymentStrategy {
	return v1alpha1.MachineDeploymentStrategy{
		Type:          v1alpha1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: limits(maxUnavailable, maxSurge)},
	}
}

func inPlace(maxUnavailable, maxSurge string, orchestration v1alpha1.OrchestrationType) v1alpha1.MachineDeploymentStrategy {
	return v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
		InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
			UpdateConfiguration: limits(maxUnavailable, maxSurge), OrchestrationType: orchestration,
		},
	}
}

// check compares what was found with the texts that are wanted.
func check(t *testing.T, errs field.ErrorList, want []string, wantReason string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if reason := validation.Reason(errs); reason != wantReason {
		t.Errorf("reason: want %q, got %q", wantReason, reason)
	}
}

func TestStrategies(t *testing.T) {
	const needsLimit = "must be a number, or a percentage such as 25%"
	leftover := rolling("many", "")
	leftover.Type = v1alpha1.RecreateMachineDeploymentStrategyType
	typeless := rolling("", "3")
	typeless.Type = ""
	typelessBad := rolling("3", "three")
	typelessBad.Type = ""
	typelessInPlace := inPlace("1", "0", v1alpha1.OrchestrationTypeAuto)
	typelessInPlace.Type = ""

	for name, test := range map[string]struct {
		strategy v1alpha1.MachineDeploymentStrategy
		want     []string
	}{
		"none":              {},
		"rolling":           {strategy: rolling("0", "25%")},
		"rolling, negative": {strategy: rolling("-1", "1")},
		"rolling, limits missing": {rolling("", ""), []string{
			"spec.strategy.rollingUpdate.maxUnavailable: Required value: " + needsLimit,
			"spec.strategy.rollingUpdate.maxSurge: Required value: " + needsLimit,
		}},
		"rolling, no percentage": {rolling("1", "some"), []string{`spec.strategy.rollingUpdate.maxSurge: Invalid value: "some": ` + needsLimit}},
		"rolling, too many": {rolling("1", "99999999999%"), []string{
			`spec.strategy.rollingUpdate.maxSurge: Invalid value: "99999999999%": must not be more than 1000000 machines`,
		}},
		"rolling, nothing else": {v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType}, []string{
			"spec.strategy.rollingUpdate: Required value: type RollingUpdate needs it",
		}},
		"recreate, leftover": {strategy: leftover},
		"in place":           {strategy: inPlace("1", "10%", v1alpha1.OrchestrationTypeManual)},
		"in place, no chooser": {inPlace("1", "1", ""), []string{
			`spec.strategy.inPlaceUpdate.orchestrationType: Invalid value: "": orchestrationType must be either Auto or Manual`,
		}},
		"in place, limit missing": {
			inPlace("1", "", v1alpha1.OrchestrationTypeAuto), []string{"spec.strategy.inPlaceUpdate.maxSurge: Required value: " + needsLimit},
		},
		"in place, nothing else": {v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType}, []string{
			"spec.strategy.inPlaceUpdate: Required value: type InPlaceUpdate needs it",
		}},
		"no type, one limit": {strategy: typeless},
		"no type, bad limit": {typelessBad, []string{`spec.strategy.rollingUpdate.maxSurge: Invalid value: "three": ` + needsLimit}},
		"no type, in place":  {typelessInPlace, []string{"spec.strategy.type: Required value: inPlaceUpdate needs type InPlaceUpdate"}},
		"unknown": {v1alpha1.MachineDeploymentStrategy{Type: "Rolling"}, []string{
			`spec.strategy.type: Invalid value: "Rolling": strategy type must be one of [InPlaceUpdate Recreate RollingUpdate]`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reason := ""
			if test.want != nil {
				reason = v1alpha1.ReasonInvalidSpec
			}
			deployment := &v1alpha1.MachineDeployment{Spec: v1alpha1.MachineDeploymentSpec{
				Replicas: 3, Selector: selector(), Template: template(), Strategy: test.strategy,
			}}
			check(t, validation.ValidateMachineDeployment(deployment), test.want, reason)
		})
	}
}

// TestMachineSetsAndDeployments covers what the two have in common.
func TestMachineSetsAndDeployments(t *testing.T) {
	for name, test := range map[string]struct {
		change func(replicas *int32, selector **metav1.LabelSelector, template *v1alpha1.MachineTemplateSpec)
		want   []string
		reason string
	}{
		"good": {change: func(*int32, **metav1.LabelSelector, *v1alpha1.MachineTemplateSpec) {}},
		"VM in the template": {
			func(_ *int32, _ **metav1.LabelSelector, template *v1alpha1.MachineTemplateSpec) {
				template.Spec.ProviderID = "a"
			},
			[]string{"spec.template.spec.providerID: Forbidden: must not be set: all machines of the template would have the same VM"},
			v1alpha1.ReasonInvalidSpec,
		},
		"negative replicas": {
			func(replicas *int32, _ **metav1.LabelSelector, _ *v1alpha1.MachineTemplateSpec) { *replicas = -1 },
			[]string{"spec.replicas: Invalid value: -1: must not be negative"},
			v1alpha1.ReasonInvalidSpec,
		},
		"no selector": {
			func(_ *int32, selector **metav1.LabelSelector, _ *v1alpha1.MachineTemplateSpec) { *selector = nil },
			[]string{"spec.selector: Required value: must be there, to find the machines again"},
			v1alpha1.ReasonSelectorMatchesNothing,
		},
		"selector of many values": {
			func(_ *int32, selector **metav1.LabelSelector, _ *v1alpha1.MachineTemplateSpec) {
				(*selector).MatchExpressions = []metav1.LabelSelectorRequirement{
					{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: slices.Repeat([]string{"x"}, validation.MaxSelector-3)},
					{Key: "fleet.machine.sapcloud.io/slot", Operator: metav1.LabelSelectorOpDoesNotExist},
				}
				(*selector).MatchLabels["tier"] = "a"
			},
			[]string{"spec.selector: Invalid value: must not have more than 100 labels, expressions and values, and has 101"},
			v1alpha1.ReasonInvalidSpec,
		},
		"empty selector": {
			func(_ *int32, selector **metav1.LabelSelector, _ *v1alpha1.MachineTemplateSpec) {
				*selector = &metav1.LabelSelector{}
			},
			[]string{`spec.selector: Invalid value: "": must not be empty: it would select every machine`},
			v1alpha1.ReasonSelectorMatchesEverything,
		},
		"unknown operator": {
			func(_ *int32, selector **metav1.LabelSelector, _ *v1alpha1.MachineTemplateSpec) {
				(*selector).MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "name", Operator: "Like"}}
			},
			[]string{`spec.selector.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator`},
			v1alpha1.ReasonInvalidSpec,
		},
		"other value": {
			func(_ *int32, _ **metav1.LabelSelector, template *v1alpha1.MachineTemplateSpec) {
				template.Labels["name"] = "other"
			},
			[]string{`spec.selector: Invalid value: "name=pool": is not matching with spec.template.metadata.labels`},
			v1alpha1.ReasonSelectorMatchesNothing,
		},
		"expression that does not match": {
			func(_ *int32, selector **metav1.LabelSelector, _ *v1alpha1.MachineTemplateSpec) {
				(*selector).MatchExpressions = []metav1.LabelSelectorRequirement{
					{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist},
				}
			},
			[]string{`spec.selector: Invalid value: "name=pool,!tier": is not matching with spec.template.metadata.labels`},
			v1alpha1.ReasonSelectorMatchesNothing,
		},
		"no class": {
			func(_ *int32, _ **metav1.LabelSelector, template *v1alpha1.MachineTemplateSpec) {
				template.Spec.Class = v1alpha1.ClassSpec{}
			},
			[]string{
				"spec.template.spec.class.kind: Required value: Kind is required",
				"spec.template.spec.class.name: Required value: Name is required",
			},
			v1alpha1.ReasonInvalidSpec,
		},
		"several things": {
			func(replicas *int32, selector **metav1.LabelSelector, _ *v1alpha1.MachineTemplateSpec) {
				*replicas, *selector = -7, nil
			},
			[]string{
				"spec.replicas: Invalid value: -7: must not be negative",
				"spec.selector: Required value: must be there, to find the machines again",
			},
			v1alpha1.ReasonSelectorMatchesNothing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := v1alpha1.MachineDeploymentSpec{Replicas: 3, Selector: selector(), Template: template()}
			test.change(&deployment.Replicas, &deployment.Selector, &deployment.Template)
			check(t, validation.ValidateMachineDeployment(&v1alpha1.MachineDeployment{Spec: deployment}), test.want, test.reason)

			set := v1alpha1.MachineSetSpec{Replicas: 3, Selector: selector(), Template: template()}
			test.change(&set.Replicas, &set.Selector, &set.Template)
			check(t, validation.ValidateMachineSet(&v1alpha1.MachineSet{Spec: set}), test.want, test.reason)
		})
	}
}

func TestMachines(t *testing.T) {
	good := &v1alpha1.Machine{Spec: template().Spec}
	check(t, validation.ValidateMachine(good), nil, "")

	nameless := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass"}}}
	check(t, validation.ValidateMachine(nameless), []string{"spec.class.name: Required value: Name is required"}, v1alpha1.ReasonInvalidSpec)
}

func TestMachineClasses(t *testing.T) {
	check(t, validation.ValidateMachineClass(&v1alpha1.MachineClass{}), nil, "")

	node := &v1alpha1.NodeTemplate{
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), "gpu": resource.MustParse("0"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		},
		InstanceType: "medium", Region: "north", Zone: "north-1",
	}
	check(t, validation.ValidateMachineClass(&v1alpha1.MachineClass{NodeTemplate: node}), nil, "")

	delete(node.Capacity, "gpu")
	node.Zone = ""
	check(t, validation.ValidateMachineClass(&v1alpha1.MachineClass{NodeTemplate: node}), []string{
		"nodeTemplate.capacity[gpu]: Required value: cpu, gpu and memory are required",
		"nodeTemplate.zone: Required value: must not be empty",
	}, v1alpha1.ReasonInvalidSpec)
}
