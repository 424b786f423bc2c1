package validation_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

// FuzzValidate reads any bytes as an object of each kind. Every object that decodes gets the same
// answer twice.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"spec":null,"nodeTemplate":{}}`,
		`{"spec":{"replicas":-1,"selector":{},"template":{"metadata":{"labels":{"a":"b"}}}}}`,
		`{"spec":{"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"","operator":"In","values":[]}]}}}`,
		`{"spec":{"selector":{"matchLabels":{"-":"a","!":"b","?":"c","*":"d","/":"e"}}}}`,
		`{"spec":{"replicas":2147483647,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"100%","maxUnavailable":-2147483648}}}}`,
		`{"spec":{"strategy":{"type":"InPlaceUpdate","inPlaceUpdate":{"maxSurge":"9223372036854775807%","maxUnavailable":"%"}}}}`,
		`{"spec":{"strategy":{"rollingUpdate":{"maxSurge":"-0%"}},"class":{"name":"x"},"template":{"spec":{"class":{}}}}}`,
		`{"nodeTemplate":{"capacity":{"cpu":"1e3","gpu":-1,"memory":""},"zone":"z"},"providerSpec":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		twice(t, document, validation.ValidateMachineDeployment)
		twice(t, document, validation.ValidateMachineSet)
		twice(t, document, validation.ValidateMachine)
		twice(t, document, validation.ValidateMachineClass)
	})
}

type kinds interface {
	v1alpha1.MachineDeployment | v1alpha1.MachineSet | v1alpha1.Machine | v1alpha1.MachineClass
}

func twice[T kinds](t *testing.T, document []byte, validate func(*T) field.ErrorList) {
	t.Helper()
	var object T
	if json.Unmarshal(document, &object) != nil {
		return
	}
	first, second := validate(&object), validate(&object)
	if diff := cmp.Diff(texts(first), texts(second)); diff != "" {
		t.Errorf("two answers for the same object:\n%s", diff)
	}
	if (len(first) > 0) != (validation.Reason(first) != "") {
		t.Errorf("want a reason exactly when there are errors, got %q for %v", validation.Reason(first), first)
	}
}

func texts(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}
