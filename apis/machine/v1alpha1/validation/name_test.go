package validation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// The name of a machine is the value of a label of its Node.
func TestMachineNameThatIsNoLabelValueIsRefused(t *testing.T) {
	for name, valid := range map[string]bool{"m": true, "a.b-1": true, strings.Repeat("m", 63): true, strings.Repeat("m", 64): false} {
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
		}
		if errs := ValidateMachine(m); (len(errs) == 0) != valid {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
