package namespacelease

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// recorded keeps the objects of Events.
type recorded []string

// Eventf is events.EventRecorder's.
func (e *recorded) Eventf(about, _ runtime.Object, eventtype, reason, _, _ string, _ ...any) {
	if root, ok := about.(*corev1.ObjectReference); ok {
		*e = append(*e, eventtype+" "+reason+": "+root.Namespace+"/"+root.Name)
	}
}

func TestRefused_RootsOfTheSlot_GetAnEvent(t *testing.T) {
	var got recorded
	r := &Reporter{
		Events: &got,
		Holds:  func(slot int) bool { return slot == 3 },
		SlotOf: func(_, name string) int { return len(name) },
		Roots: func(namespace string) []corev1.ObjectReference {
			return []corev1.ObjectReference{{Namespace: namespace, Name: "one"}, {Namespace: namespace, Name: "other"}, {Namespace: namespace, Name: "two"}}
		},
	}
	r.Refused(Key{Namespace: "n", Slot: 5}, "mcm") // another replica's slot
	r.Refused(Key{Namespace: "n", Slot: 3}, "mcm")
	if diff := cmp.Diff(recorded{"Warning NotAlone: n/one", "Warning NotAlone: n/two"}, got); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}
