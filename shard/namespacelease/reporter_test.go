package namespacelease

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// recorded keeps the objects of Events.
type recorded []string

// Eventf is events.EventRecorder's.
func (e *recorded) Eventf(about, _ runtime.Object, eventtype, reason, _, _ string, _ ...any) {
	if root, ok := about.(*corev1.ObjectReference); ok {
		*e = append(*e, eventtype+" "+reason+": "+root.Namespace+"/"+root.Name)
	}
}

// A root that is created later gets an Event, too, and no root gets two.
func TestRefusedRootsOfTheSlotGetAnEvent(t *testing.T) {
	var got recorded
	roots := []corev1.ObjectReference{{Name: "one", UID: "1"}}
	holds := false
	r := &Reporter{
		Events: &got,
		Holds:  func(slot int) bool { return holds && slot == 3 },
		Roots: func(_ string, slot int) []corev1.ObjectReference {
			return map[int][]corev1.ObjectReference{3: roots}[slot]
		},
	}
	key := Key{Namespace: "n", Slot: 3}
	known := r.Refused(key, Refusal{Other: "mcm"}, nil)
	if len(got) > 0 || known != nil {
		t.Errorf("another replica holds the slot, and got Events %v, roots %v", got, known)
	}
	holds = true
	known = r.Refused(key, Refusal{Other: "mcm"}, known)
	roots = []corev1.ObjectReference{{Name: "one", UID: "3"}, {Name: "two", UID: "4"}}
	known = r.Refused(key, Refusal{Other: "mcm"}, known)
	known = r.Refused(key, Refusal{Other: "mcm"}, known)
	r.Refused(key, Refusal{Unselected: true}, map[types.UID]bool{"3": true})
	want := recorded{"Warning NotAlone: /one", "Warning NotAlone: /one", "Warning NotAlone: /two", "Warning NotSelected: /two"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[types.UID]bool{"3": true, "4": true}, known); diff != "" {
		t.Errorf("roots (-want +got):\n%s", diff)
	}
}
