package scale

import (
	"fmt"
	"math"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// number draws a number that a client may have written.
func number(t *rapid.T, name string) int32 {
	return rapid.SampledFrom([]int32{math.MinInt32, -3, -1, 0, 1, 2, 5, math.MaxInt32 - 1, math.MaxInt32}).Draw(t, name)
}

// Every number that decodes gets a verdict, and no machine is deleted for an invalid number.
func TestExtremeNumbers(t *testing.T) {
	worlds.Check(t, 5, func(t *rapid.T) {
		c := newCluster(t)
		set := c.set()
		set.Finalizers = []string{v1alpha1.FinalizerName}
		set.Spec.Replicas, set.Spec.MinReadySeconds = number(t, "replicas"), number(t, "min ready")
		set.Spec.AutoPreserveFailedMachineMax = number(t, "preserve")
		set.Status.Replicas, set.Status.AutoPreserveFailedMachineCount = number(t, "was"), number(t, "preserved")
		set.Annotations[v1alpha1.AnnotationDesiredReplicas] = fmt.Sprint(number(t, "desired"))
		w := c.observe(true)
		w.CountMinReady = rapid.Bool().Draw(t, "count")
		w.Live = &Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
		for i := range rapid.IntRange(0, 5).Draw(t, "machines") {
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("m", i), UID: types.UID(fmt.Sprint("m", i)), CreationTimestamp: metav1.NewTime(born),
				Labels: map[string]string{"a": "b"},
			}}
			m.Annotations = map[string]string{
				v1alpha1.AnnotationPriority: rapid.SampledFrom([]string{"1", "3", "99999999999999999999", "-1", ""}).Draw(t, "priority"),
			}
			if rapid.Bool().Draw(t, "kept") {
				m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.PreserveAuto
			}
			m.Status.CurrentStatus.Phase = rapid.SampledFrom([]v1alpha1.MachinePhase{v1alpha1.MachineRunning, v1alpha1.MachineFailed}).Draw(t,
				"phase")
			w.Owned = append(w.Owned, m)
			w.Live.Owned[m.UID] = &m.ObjectMeta
			w.Disruptions = append(w.Disruptions, disruption.Disruption{UID: m.UID})
		}
		v := Decide(w)
		for range maxActions {
			if v.Do != Save {
				break
			}
			in, err := machinefacts.ReadIntents(v.Set)
			if err != nil {
				t.Fatal(err)
			}
			if len(in.Create) > burst || len(in.Delete) > burst {
				t.Fatalf("%d to create and %d to delete at a time", len(in.Create), len(in.Delete))
			}
			w.Set = v.Set
			v = Decide(w)
		}
		if replicas := set.Spec.Replicas; (replicas < 0 || replicas > 1_000_000) &&
			(v.Do != Rest || machinefacts.MachineSetCondition(&v.Set.Status, v1alpha1.MachineSetValid) == nil) {
			t.Fatalf("replicas %d: Do = %s, status %+v", replicas, v.Do, v.Set.Status)
		}
	})
}
