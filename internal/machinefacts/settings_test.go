package machinefacts

import (
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// The annotation of a root decides whether updated Nodes get the taint; without it the fleet's
// setting does.
func TestOmitsComponentsTaint(t *testing.T) {
	for _, tc := range []struct {
		annotation      string
		otherwise, want bool
	}{
		{"", false, false},
		{"", true, true},
		{"false", false, true},
		{"false", true, true},
		{"true", false, false},
		{"true", true, false},
		{"perhaps", false, false},
		{"perhaps", true, true},
	} {
		d := &v1alpha1.MachineDeployment{}
		if tc.annotation != "" {
			d.Annotations = map[string]string{v1alpha1.AnnotationComponentsTaint: tc.annotation}
		}
		if got := OmitsComponentsTaint(d, tc.otherwise); got != tc.want {
			t.Errorf("annotation %q, else %v: omits %v, want %v", tc.annotation, tc.otherwise, got, tc.want)
		}
	}
}
