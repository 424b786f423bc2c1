package scale

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// numbered returns a machine of the set with an ordinal; the text "" means without one.
func numbered(set *v1alpha1.MachineSet, ordinal int64, text string) *v1alpha1.Machine {
	name := machinefacts.Name(set.Name, set.UID, ordinal)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if text != "" {
		m.Annotations = map[string]string{v1alpha1.AnnotationOrdinal: text}
	}
	return m
}

// A creation may be withdrawn only if neither the API server has its machine, nor this pass has
// created it.
func TestIsNotCreated(t *testing.T) {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}}
	live := map[types.UID]*metav1.ObjectMeta{"1": &numbered(set, 1, "1").ObjectMeta, "0": &numbered(set, 0, "").ObjectMeta}
	notCreated := isNotCreated(World{Set: set, Live: &Live{Owned: live}, Done: Done{Created: map[int64]bool{2: true}}})
	for ordinal, want := range map[int64]bool{0: true, 1: false, 2: false, 3: true} {
		if got := notCreated(ordinal); got != want {
			t.Errorf("ordinal %d: %t, want %t", ordinal, got, want)
		}
	}
}

func TestWithdrawTakesTheLastPermittedOrdinals(t *testing.T) {
	in := machinefacts.Intents{Create: []int64{1, 2, 3, 4, 5}}
	n := withdraw(&in, 2, func(ordinal int64) bool { return ordinal != 5 })
	if want := []int64{1, 2, 5}; n != 2 || !slices.Equal(in.Create, want) {
		t.Errorf("%d withdrawn, and %v are left, want 2 and %v", n, in.Create, want)
	}
}

func TestNextOrdinal(t *testing.T) {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}}
	for name, c := range map[string]struct {
		machines []*v1alpha1.Machine
		want     int64
	}{
		"none": {nil, 4}, "without an ordinal": {[]*v1alpha1.Machine{numbered(set, 9, "")}, 4},
		"lower":        {[]*v1alpha1.Machine{numbered(set, 3, "3")}, 4},
		"in any order": {[]*v1alpha1.Machine{numbered(set, 2, "2"), numbered(set, 7, "7"), numbered(set, 5, "5")}, 8},
	} {
		if got := nextOrdinal(World{Set: set, Owned: c.machines}, machinefacts.Intents{Next: 4}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// An ordinal whose name another object has is not awaited: its machine cannot be created.
func TestOccupiedOrdinalIsNotAwaited(t *testing.T) {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}}
	out := withoutObserved(World{Set: set, Done: Done{Occupied: map[int64]bool{1: true}}},
		machinefacts.Intents{Next: 3, Create: []int64{1, 2}})
	if want := []int64{2}; !slices.Equal(out.Create, want) {
		t.Errorf("to create: %v, want %v", out.Create, want)
	}
}

// A machine that is being deleted already is not kept any more.
func TestSparesMachineThatIsBeingDeleted(t *testing.T) {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}}
	m := numbered(set, 1, "1")
	m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	in := machinefacts.Intents{Delete: []machinefacts.Deletion{{Name: m.Name, UID: m.UID, Failed: true}}}
	for deleted, want := range map[bool]bool{false: true, true: false} {
		m.DeletionTimestamp = nil
		if deleted {
			m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		if got := isDeletionObsolete(World{Set: set}, in, m); got != want {
			t.Errorf("deleted: %t: kept: %t, want %t", deleted, got, want)
		}
	}
}
