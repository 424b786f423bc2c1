package machinefacts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestSame(t *testing.T) {
	class := func(cpu string, labels map[string]string) *v1alpha1.MachineClass {
		capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		c := &v1alpha1.MachineClass{NodeTemplate: &v1alpha1.NodeTemplate{Capacity: capacity}}
		c.Labels = labels
		return c
	}
	one := class("1", nil)
	for name, tc := range map[string]struct {
		other *v1alpha1.MachineClass
		want  bool
	}{
		"equal":              {class("1", nil), true},
		"no list, and empty": {class("1", map[string]string{}), true},
		"the same amount":    {class("1000m", nil), true},
		"another amount":     {class("2", nil), false},
		"another label":      {class("1", map[string]string{"a": ""}), false},
	} {
		if got := Same(one, tc.other); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
