package scale

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// BenchmarkDecide decides on a set whose machines are as they should be. It happens after each
// change of a machine.
func BenchmarkDecide(b *testing.B) {
	for _, machines := range []int32{10, 100} {
		set := labeledSet()
		set.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}
		set.Labels = map[string]string{v1alpha1.LabelSlot: "7"}
		set.Finalizers = []string{v1alpha1.FinalizerName}
		set.Spec.Replicas = machines
		w := World{Now: born, Set: set}
		for i := range machines {
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("m", i), UID: types.UID(fmt.Sprint("u", i)), Labels: set.Spec.Template.Labels,
			}}
			m.Spec.Class = set.Spec.Template.Spec.Class
			m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
			w.Owned = append(w.Owned, m)
		}
		if v := Decide(w); v.Do != Rest || v.Set.Status.ReadyReplicas != machines {
			b.Fatalf("got %+v", v)
		}
		b.Run(fmt.Sprintf("%d-machines", machines), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decide(w)
			}
		})
	}
}
