package scale

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/ready"
)

// TestIntentsAreReadByOtherControllers: what intents say is read by those who count the machines of a set, too.
func TestIntentsAreReadByOtherControllers(t *testing.T) {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "u"}}
	made := func(ordinal string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationOrdinal: ordinal}}}
	}
	expect := func(when string, want int32, seen ...*v1alpha1.Machine) {
		t.Helper()
		if got := ready.Coming(set, seen); got != want {
			t.Errorf("%s: %d are coming, want %d", when, got, want)
		}
	}
	expect("no intents", 0)
	Intents{Next: 5, Create: []int64{2, 3, 4}}.write(set)
	expect("three", 3)
	expect("one of them is seen, and another one", 2, made("3"), made("1"))
	expect("all are seen", 0, made("2"), made("3"), made("4"))
	set.UID = "another"
	expect("intents of another set", 0)
	set.Annotations[v1alpha1.AnnotationIntents] = "nonsense"
	expect("intents of another set", 0)
}
