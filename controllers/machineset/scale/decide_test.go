package scale

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A set that is deleted as kubectl delete --cascade=orphan does keeps its machines, and is released
// as soon as they were released from it: then the next one has its name, and selects them.
func TestMachinesOfASetThatIsDeletedWithOrphansStay(t *testing.T) {
	now := metav1.NewTime(born)
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Name: "s", Namespace: "n", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, DeletionTimestamp: &now,
		Finalizers: []string{v1alpha1.FinalizerName},
	}}
	w := World{Now: born, Set: set, Owned: []*v1alpha1.Machine{{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m-uid"}}}}
	if v := Decide(w); v.Do != Delete {
		t.Errorf("deleted with its machines: %s, want %s", v.Do, Delete)
	}
	set.Finalizers = append(set.Finalizers, metav1.FinalizerOrphanDependents)
	if v := Decide(w); v.Do != Rest || slices.Contains(v.Set.Finalizers, v1alpha1.FinalizerName) || len(v.Set.Finalizers) != 1 {
		t.Errorf("deleted without its machines: %s, want %s without our finalizer", v.Do, Rest)
	}
}

// The class is checked before a machine is created from it, unless the check may hang.
func TestCheckOfTheClassThatMayHangComesLast(t *testing.T) {
	set := labeledSet()
	set.Labels, set.Finalizers = map[string]string{v1alpha1.LabelSlot: "7"}, []string{v1alpha1.FinalizerName}
	set.Spec.Replicas, set.Spec.Template.Spec.Class = 1, v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}
	for last, want := range map[bool][]Action{
		false: {CheckClass, ListLive, Save, Create},
		true:  {ListLive, Save, Create, CheckClass},
	} {
		w := World{Now: born, Set: set, MustCheckClass: true, ClassCheckLast: last, Done: Done{Created: map[int64]bool{}}}
		var did []Action
		for v := Decide(w); v.Do != Rest && len(did) < 10; v = Decide(w) {
			did = append(did, v.Do)
			switch v.Do {
			case ListLive:
				w.Live = &Live{}
			case Save:
				w.Set = v.Set
			case Create:
				w.Done.Created[v.Ordinals[0]] = true
			case CheckClass:
				w.MustCheckClass = false
			case Rest, Adopt, Release, Delete, Update:
			}
		}
		if !slices.Equal(did, want) {
			t.Errorf("ClassCheckLast %t: %v, want %v", last, did, want)
		}
	}
}

// A failed machine is replaced when it has a disruption, and not before.
func TestNothingIsReplacedWithoutADisruption(t *testing.T) {
	for name, tc := range map[string]struct {
		disruptions []disruption.Disruption
		want        int
	}{
		"none":              {nil, 0},
		"another's":         {[]disruption.Disruption{{Name: "m", UID: "other"}}, 0},
		"its own":           {[]disruption.Disruption{{Name: "m", UID: "m-uid"}}, 1},
		"its own, and kept": {[]disruption.Disruption{{Name: "kept", UID: "kept-uid"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
				Name: "s", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Finalizers: []string{v1alpha1.FinalizerName},
			}}
			set.Spec = v1alpha1.MachineSetSpec{
				Replicas: 2,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: v1alpha1.MachineTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
				},
			}
			w := World{
				Now: born, Set: set, Disruptions: tc.disruptions, Live: &Live{Owned: map[types.UID]*metav1.ObjectMeta{"m-uid": {}, "kept-uid": {}}},
			}
			for _, name := range []string{"m", "kept"} {
				m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"a": "b"}}}
				m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
				w.Owned = append(w.Owned, m)
			}
			w.Owned[1].Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.PreserveWhenFailed}
			in, err := machinefacts.ReadIntents(Decide(w).Set)
			if err != nil || len(in.Delete) != tc.want || len(in.Create) != tc.want {
				t.Errorf("intents %+v (%v), want %d to go and as many to come", in, err, tc.want)
			}
		})
	}
}

// A machine that was recorded for deletion because it had failed stays if it recovers before it is
// deleted, and nothing is created in its place. A machine that was recorded for deletion as surplus
// is deleted.
func TestRecoveredMachineIsNotDeleted(t *testing.T) {
	machine := func(phase v1alpha1.MachinePhase) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m-uid", Labels: map[string]string{"a": "b"}}}
		m.Status.CurrentStatus.Phase = phase
		return m
	}
	for name, tc := range map[string]struct {
		phase  v1alpha1.MachinePhase
		failed bool
		want   Action
	}{
		"failed, and still has":     {v1alpha1.MachineFailed, true, Delete},
		"failed, and has recovered": {v1alpha1.MachineRunning, true, Save},
		"not wanted":                {v1alpha1.MachineRunning, false, Delete},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
				Name: "s", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Finalizers: []string{v1alpha1.FinalizerName},
			}}
			set.Spec = v1alpha1.MachineSetSpec{
				Replicas: 1,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: v1alpha1.MachineTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
				},
			}
			machinefacts.Intents{
				Next: 2, Create: []int64{1}, Delete: []machinefacts.Deletion{{Name: "m", UID: "m-uid", Failed: tc.failed}},
			}.Write(set)
			w := World{
				Now: born, Set: set, Owned: []*v1alpha1.Machine{machine(tc.phase)}, Live: &Live{Owned: map[types.UID]*metav1.ObjectMeta{"m-uid": {}}},
			}
			v := Decide(w)
			if v.Do != tc.want {
				t.Fatalf("Do = %s, want %s", v.Do, tc.want)
			}
			if v.Do != Save {
				return
			}
			if in, err := machinefacts.ReadIntents(v.Set); err != nil || in.Next != 2 || !settled(in) {
				t.Errorf("intents %+v (%v), want none left", in, err)
			}
		})
	}
}

// A tenant can write any intents on its sets. What no controller has written is not carried out,
// and is reported.
func TestForgedIntents(t *testing.T) {
	numbers := func(n int) string { return strings.TrimSuffix(strings.Repeat("7,", n), ",") }
	deletions := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{"name":"m","uid":"u"},`, n), ",") }
	for name, tc := range map[string]struct {
		intents string
		valid   bool
	}{
		"as many as can be":           {`{"next":9,"create":[` + numbers(burst) + `],"delete":[` + deletions(burst) + `]}`, true},
		"more to create than can be":  {`{"next":9,"create":[` + numbers(burst+1) + `]}`, false},
		"45000 to create":             {`{"next":9,"create":[` + numbers(45_000) + `]}`, false},
		"more to delete than can be":  {`{"next":9,"delete":[` + deletions(burst+1) + `]}`, false},
		"256 KiB that are no intents": {strings.Repeat("x", 256<<10), false},
		"many that are negative":      {`{"next":-1,"create":[` + numbers(45_000) + `]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
				Name: "s", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Finalizers: []string{v1alpha1.FinalizerName},
				Annotations: map[string]string{v1alpha1.AnnotationIntents: tc.intents},
			}}
			set.Spec = v1alpha1.MachineSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: v1alpha1.MachineTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
				},
			}
			v := Decide(World{Now: born, Set: set})
			if tc.valid {
				if v.Do != Create {
					t.Errorf("%s, want %s", v.Do, Create)
				}
				return
			}
			if v.Do != Rest || v.Set == nil || len(v.Set.Status.Conditions) != 1 {
				t.Fatalf("%s, want %s with a condition", v.Do, Rest)
			}
			is := v.Set.Status.Conditions[0]
			if is.Type != v1alpha1.MachineSetValid || is.Status != corev1.ConditionFalse || !strings.Contains(is.Message, "remove the annotation") ||
				len(is.Message) > bounded.Message {
				t.Errorf("condition %s=%s: %s", is.Type, is.Status, is.Message)
			}
		})
	}
}
