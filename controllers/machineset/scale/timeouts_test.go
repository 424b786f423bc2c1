package scale

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// A machine that is being deleted gets the timeouts of its set, whose changes would be too late
// otherwise, and nothing else.
func TestTimeoutsReachMachinesInDeletion(t *testing.T) {
	of := func(drain time.Duration, label string) v1alpha1.MachineSpec {
		return v1alpha1.MachineSpec{
			NodeTemplateSpec:     v1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": label}}},
			MachineConfiguration: &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: drain}},
		}
	}
	set := &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{Template: v1alpha1.MachineTemplateSpec{Spec: of(time.Minute, "b")}}}
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}, Spec: of(time.Hour, "a"),
	}
	for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineTerminating, v1alpha1.MachineFailed} {
		m.Status.CurrentStatus.Phase = phase
		changed := outOfStep(World{Set: set, Owned: []*v1alpha1.Machine{m}}, nil)
		if len(changed) != 1 {
			t.Fatalf("%s: changed: %v", phase, changed)
		}
		if diff := cmp.Diff(of(time.Minute, "a"), changed[0].Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
		if again := outOfStep(World{Set: set, Owned: changed}, nil); len(again) > 0 {
			t.Errorf("%s: out of step still", phase)
		}
	}
	for name, w := range map[string]World{
		"tried in this pass": {Done: Done{Updated: map[types.UID]bool{"m": true}}}, "undecodable": {Undecodable: map[types.UID]bool{"m": true}},
	} {
		w.Set, w.Owned = set, []*v1alpha1.Machine{m}
		if changed := outOfStep(w, nil); len(changed) > 0 {
			t.Errorf("%s: changed: %v", name, changed)
		}
	}
}
