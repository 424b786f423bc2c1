package validation_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

func TestValidate_SelectorByLabelOfController_Rejected(t *testing.T) {
	for _, tc := range []struct {
		label            string
		deployment, sets bool // rejected
	}{
		{v1alpha1.LabelNode, true, true},
		{v1alpha1.LabelMachineTemplateHash, true, false}, // a deployment sets it on its sets
		{"a", false, false},
	} {
		byLabel := metav1.LabelSelector{MatchLabels: map[string]string{tc.label: "x"}}
		byExpression := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: tc.label, Operator: metav1.LabelSelectorOpExists}}}
		for _, selector := range []metav1.LabelSelector{byLabel, byExpression} {
			machines := template()
			machines.Labels = map[string]string{tc.label: "x"}
			d := &v1alpha1.MachineDeployment{Spec: v1alpha1.MachineDeploymentSpec{Selector: &selector, Template: machines}}
			if got := len(validation.ValidateMachineDeployment(d)) > 0; got != tc.deployment {
				t.Errorf("deployment that selects by %s: rejected %v, want %v", tc.label, got, tc.deployment)
			}
			s := &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{Selector: &selector, Template: machines}}
			if got := len(validation.ValidateMachineSet(s)) > 0; got != tc.sets {
				t.Errorf("set that selects by %s: rejected %v, want %v", tc.label, got, tc.sets)
			}
		}
	}
}
