package validation_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

func TestSelectorByLabelOfAControllerIsRejected(t *testing.T) {
	for _, tc := range []struct {
		label            string
		deployment, sets bool // rejected
	}{
		{v1alpha1.LabelNode, true, true},
		{v1alpha1.LabelSlot, true, true},
		{v1alpha1.FleetDomain + "pool", true, true},
		{v1alpha1.FleetDomain + "label-of-a-later-version", true, true},
		{v1alpha1.LabelUpdateResult, true, true},
		{v1alpha1.LabelMachineTemplateHash, true, false}, // a deployment sets it on its sets
		{v1alpha1.LabelFreeze, true, false},
		{v1alpha1.LabelScaleUpDisabled, true, false},
		{v1alpha1.LabelName, false, false},
		{"a", false, false},
	} {
		selectors := []metav1.LabelSelector{{MatchLabels: map[string]string{tc.label: "x"}}}
		for operator, values := range map[metav1.LabelSelectorOperator][]string{
			metav1.LabelSelectorOpIn: {"w", "x"}, metav1.LabelSelectorOpNotIn: {"y"}, metav1.LabelSelectorOpExists: nil,
			metav1.LabelSelectorOpDoesNotExist: nil,
		} {
			selectors = append(selectors, metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: tc.label, Operator: operator, Values: values}},
			})
		}
		for _, selector := range selectors {
			machines := template()
			machines.Labels = map[string]string{tc.label: "x"}
			if len(selector.MatchExpressions) > 0 && selector.MatchExpressions[0].Operator == metav1.LabelSelectorOpDoesNotExist {
				machines.Labels = nil
			}
			d := &v1alpha1.MachineDeployment{Spec: v1alpha1.MachineDeploymentSpec{Selector: &selector, Template: machines}}
			if got := len(validation.ValidateMachineDeployment(d)) > 0; got != tc.deployment {
				t.Errorf("deployment that selects by %s: rejected %v, want %v", metav1.FormatLabelSelector(&selector), got, tc.deployment)
			}
			s := &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{Selector: &selector, Template: machines}}
			if got := len(validation.ValidateMachineSet(s)) > 0; got != tc.sets {
				t.Errorf("set that selects by %s: rejected %v, want %v", metav1.FormatLabelSelector(&selector), got, tc.sets)
			}
		}
	}
}
