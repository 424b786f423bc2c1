package lifecycle

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestAMachineIsSetAsideForLongerAndLonger(t *testing.T) {
	w := fresh()
	m := w.Machine
	m.Generation = 1
	for i, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(minutes) * time.Minute
		value, first := SetAside(m, w.Now, "a defect")
		m.Annotations = map[string]string{v1alpha1.AnnotationSetAside: value}
		trouble, wait := WhileSetAside(m, w.Now)
		if trouble == nil || wait != want || first != (i == 0) {
			t.Errorf("panic %d: set aside for %s, want %s; the first: %v", i+1, wait, want, first)
		}
		if trouble, _ := WhileSetAside(m, w.Now.Add(wait)); trouble != nil {
			t.Errorf("panic %d: it is set aside after its time", i+1)
		}
		w.Now = w.Now.Add(wait)
		if v := EndSetAside(w, rest(0)); v.Machine != nil || v.Wake != wait {
			t.Errorf("panic %d: one pass without a panic ends it: %+v", i+1, v)
		}
	}
	w.Now = w.Now.Add(time.Hour)
	if v := EndSetAside(w, rest(0)); v.Machine == nil || v.Machine.Annotations[v1alpha1.AnnotationSetAside] != "" {
		t.Error("it has been processed for an hour, and the annotation stays")
	}
}

func TestAnotherSpecIsTriedAtOnce(t *testing.T) {
	w := fresh()
	m := w.Machine
	m.Generation = 1
	value, _ := SetAside(m, w.Now, "a defect")
	m.Annotations = map[string]string{v1alpha1.AnnotationSetAside: value}
	m.Generation = 2
	if trouble, _ := WhileSetAside(m, w.Now); trouble != nil {
		t.Error("a machine with another spec is set aside for what was")
	}
	if v := EndSetAside(w, rest(0)); v.Machine == nil {
		t.Error("what was stays")
	}
	if _, first := SetAside(m, w.Now, "another defect"); !first {
		t.Error("another spec is no new series")
	}
}
