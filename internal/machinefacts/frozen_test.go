package machinefacts

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestFrozen(t *testing.T) {
	for name, tc := range map[string]struct {
		labels            map[string]string
		frozen, makesNone bool
	}{
		"nothing is said":     {nil, false, false},
		"frozen":              {map[string]string{v1alpha1.LabelFreeze: "True"}, true, true},
		"not quite":           {map[string]string{v1alpha1.LabelFreeze: "true"}, false, false},
		"not to be scaled up": {map[string]string{v1alpha1.LabelScaleUpDisabled: ""}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}}
			if frozen, makesNone := IsFrozen(set), CreatesNone(set); frozen != tc.frozen || makesNone != tc.makesNone {
				t.Errorf("frozen: %v, creates none: %v", frozen, makesNone)
			}
		})
	}
}
