package disruption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Disruptions are read as they were written, and the annotations of other clients stay, for each
// type of root. A root without disruptions has no annotation for them.
func TestWriteDisruptionsAreReadAgain(t *testing.T) {
	recorded := []Disruption{{Name: "m", UID: "u", Since: metav1.NewTime(start)}}
	for name, root := range map[string]metav1.Object{
		"without annotations": &v1alpha1.MachineDeployment{},
		"with that of a user": &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"team": "a"}}},
		"that copies annotations": &unstructured.Unstructured{
			Object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"team": "a"}}},
		},
	} {
		team := root.GetAnnotations()["team"]
		for step, want := range [][]Disruption{nil, recorded, recorded[:0]} {
			WriteDisruptions(root, want)
			got, err := ReadDisruptions(root)
			if diff := cmp.Diff(want, got); err != nil || len(want) > 0 && diff != "" || len(got) != len(want) {
				t.Errorf("a root %s, step %d: error %v (-want +got):\n%s", name, step, err, diff)
			}
			if _, has := root.GetAnnotations()[v1alpha1.AnnotationDisruptions]; has != (len(want) > 0) || root.GetAnnotations()["team"] != team {
				t.Errorf("a root %s, step %d: annotations %v", name, step, root.GetAnnotations())
			}
		}
	}
}

// A disruption allows one machine to be replaced, as long as it is in the state in which it got the
// disruption, or has failed.
func TestAllows(t *testing.T) {
	of := func(uid types.UID) Disruption { return Disruption{UID: uid, Since: metav1.NewTime(start)} }
	later := func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(start.Add(time.Minute))
	}
	for name, c := range map[string]struct {
		phase       v1alpha1.MachinePhase
		change      func(m *v1alpha1.Machine)
		disruptions []Disruption
		want        bool
	}{
		"without any":                        {v1alpha1.MachineUnknown, nil, nil, false},
		"with its own":                       {v1alpha1.MachineUnknown, nil, []Disruption{of("m")}, true},
		"with its own after another one":     {v1alpha1.MachineUnknown, nil, []Disruption{of("other"), of("m")}, true},
		"with that of another machine":       {v1alpha1.MachineUnknown, nil, []Disruption{of("other")}, false},
		"unhealthy for the second time":      {v1alpha1.MachineUnknown, later, []Disruption{of("m")}, false},
		"it has recovered":                   {v1alpha1.MachineRunning, nil, []Disruption{of("m")}, false},
		"it has failed":                      {v1alpha1.MachineFailed, later, []Disruption{of("m")}, true},
		"another one has failed":             {v1alpha1.MachineFailed, nil, []Disruption{of("other")}, false},
		"its update in place has failed":     {v1alpha1.MachineInPlaceUpdateFailed, nil, []Disruption{of("m")}, true},
		"a later update in place has failed": {v1alpha1.MachineInPlaceUpdateFailed, later, []Disruption{of("m")}, false},
	} {
		m := ofSet(setOf("s", 1), "m", c.phase)
		if c.change != nil {
			c.change(m)
		}
		if got := Allows(c.disruptions, m); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
