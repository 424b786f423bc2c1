package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

func TestAMachineIsSetAsideForLongerAndLonger(t *testing.T) {
	w := fresh()
	m := w.Machine
	m.Generation = 1
	for i, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(minutes) * time.Minute
		value, first := SetAside(m, w.Now, fmt.Sprint("defect ", i))
		m.Annotations = map[string]string{v1alpha1.AnnotationSetAside: value}
		trouble, wait := WhileSetAside(m, w.Now)
		if trouble == nil || wait != want || first != (i == 0) {
			t.Errorf("panic %d: set aside for %s, want %s; the first: %v", i+1, wait, want, first)
		}
		if text := fmt.Sprintf("panicked %d times in a row: defect %d. ", i+1, i); trouble != nil && !strings.Contains(trouble.Message, text) {
			t.Errorf("panic %d is reported as %q, want %q in it", i+1, trouble.Message, text)
		}
		if trouble, _ := WhileSetAside(m, w.Now.Add(wait)); trouble != nil {
			t.Errorf("panic %d: it is set aside after its time", i+1)
		}
		w.Now = w.Now.Add(wait)
		for planned, want := range map[time.Duration]time.Duration{0: wait, time.Second: time.Second, 2 * time.Hour: wait} {
			if v := EndSetAside(w, rest(planned)); v.Machine != nil || v.Wake != want {
				t.Errorf("panic %d: one pass without a panic, which rests for %s: %+v; want no write, and the next pass in %s", i+1, planned, v, want)
			}
		}
	}
	w.Now = w.Now.Add(time.Hour)
	if v := EndSetAside(w, rest(0)); v.Machine == nil || v.Machine.Annotations[v1alpha1.AnnotationSetAside] != "" {
		t.Error("it has been processed for an hour, and the annotation stays")
	}
	runs := w.Machine.DeepCopy()
	runs.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	v := EndSetAside(w, Verdict{Do: Rest, Machine: runs})
	if v.Machine.Annotations[v1alpha1.AnnotationSetAside] != "" || v.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		t.Errorf("the write of the pass does not end it, or is lost: %+v", v.Machine)
	}
	w.Machine = v.Machine
	if v := EndSetAside(w, rest(time.Minute)); v.Machine != nil || v.Wake != time.Minute {
		t.Errorf("the verdict on a machine that is not set aside has changed: %+v", v)
	}
}

// A note that is valid for much longer than any wait was written by another clock, or by another
// client.
func TestAMachineIsNotSetAsidePermanently(t *testing.T) {
	for ahead, isSetAside := range map[time.Duration]bool{
		-time.Second: false, 0: false, time.Second: true, 2 * time.Hour: true, 2*time.Hour + time.Second: false, 1000 * time.Hour: false,
	} {
		w := fresh()
		text, err := json.Marshal(setAsideNote{Times: 1, Until: w.Now.Add(ahead), Generation: w.Machine.Generation})
		if err != nil {
			t.Fatal(err)
		}
		w.Machine.Annotations = map[string]string{v1alpha1.AnnotationSetAside: string(text)}
		if trouble, wait := WhileSetAside(w.Machine, w.Now); (trouble != nil) != isSetAside || isSetAside && wait != ahead {
			t.Errorf("until in %s: set aside for %s with %+v, want that it is: %t", ahead, wait, trouble, isSetAside)
		}
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

// The time in which a machine was set aside is not that of its deadlines: nothing was done for it.
func TestTimeAsideDoesNotCountForDeadlines(t *testing.T) {
	w := fresh()
	m, begun := w.Machine, w.Now
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachinePending, LastUpdateTime: metav1.NewTime(begun)}
	m.CreationTimestamp = metav1.NewTime(begun)
	due := joinDeadline(w)
	value, _ := SetAside(m, begun.Add(time.Minute), "a defect")
	m.Annotations = map[string]string{v1alpha1.AnnotationSetAside: value}
	if got := WasSetAside(m, begun.Add(90*time.Second)); !got.Back.IsZero() {
		t.Errorf("it is set aside, and that has ended: %+v", got)
	}
	w.Now = begun.Add(2 * time.Minute)
	w.Reach = WasSetAside(m, w.Now)
	if got := joinDeadline(w); !got.Equal(due.Add(firstSetAside)) {
		t.Errorf("the deadline is %s later, want %s", got.Sub(due), firstSetAside)
	}
	m.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown
	if !isBeforeOutage(w) {
		t.Error("its health timeout does not begin anew")
	}
}

// A machine was processed without a panic only while a replica ran.
func TestTimeWithoutAReplicaIsNoTimeWithoutAPanic(t *testing.T) {
	w := fresh()
	m := w.Machine
	value, _ := SetAside(m, w.Now, "a defect")
	m.Annotations = map[string]string{v1alpha1.AnnotationSetAside: value}
	w.Reach = reach.Fact{From: w.Now.Add(firstSetAside + 10*time.Second), Back: w.Now.Add(3 * time.Hour)}
	w.Now = w.Reach.Back
	if v := EndSetAside(w, rest(0)); v.Machine != nil || v.Wake != firstSetAside-10*time.Second {
		t.Errorf("after 10 s of processing it is %+v, want another pass in 50 s", v)
	}
}
