package scale

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// reasonWorld returns a set with so many replicas that is about to delete some of its machines, all
// of which run.
func reasonWorld(replicas int32, names ...string) World {
	w := World{Now: born.Add(time.Hour), Set: &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "s", UID: "s-uid", Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Annotations: map[string]string{},
			Finalizers: []string{v1alpha1.FinalizerName},
		},
	}, Done: Done{Refused: map[types.UID]bool{}}}
	labels := map[string]string{"a": "b"}
	w.Set.Spec.Replicas, w.Set.Spec.Selector = replicas, &metav1.LabelSelector{MatchLabels: labels}
	w.Set.Spec.Template.Labels, w.Set.Spec.Template.Spec.Class = labels, v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}
	w.Live = &Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
	for i, name := range names {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: labels, Annotations: map[string]string{},
			CreationTimestamp: metav1.NewTime(born.Add(time.Duration(i) * time.Minute)),
		}, Spec: w.Set.Spec.Template.Spec}
		m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		w.Owned, w.Live.Owned[m.UID] = append(w.Owned, m), &m.ObjectMeta
	}
	return w
}

// fails has a machine fail with a disruption on its root.
func fails(w *World, i int, operation v1alpha1.MachineOperationType, description string) {
	m := w.Owned[i]
	m.Status.CurrentStatus.Phase, m.Status.CurrentStatus.LastUpdateTime = v1alpha1.MachineFailed, metav1.NewTime(born.Add(30*time.Minute))
	m.Status.LastOperation = v1alpha1.LastOperation{Type: operation, State: v1alpha1.MachineStateFailed, Description: description}
	w.Disruptions = append(w.Disruptions, disruption.Disruption{Name: m.Name, UID: m.UID, Since: metav1.NewTime(born.Add(20 * time.Minute))})
}

// TestEachRuleIsRecordedWithTheIntentAndPassedToTheDeletion has every way by which a set
// deletes a machine.
func TestEachRuleIsRecordedWithTheIntentAndPassedToTheDeletion(t *testing.T) {
	since := born.Add(20 * time.Minute).Format(time.RFC3339)
	for _, c := range []struct {
		name  string
		world func() World
		want  receipt.Reason
	}{
		{
			"scaled down, by age", func() World { return reasonWorld(2, "m", "n", "o") },
			receipt.Reason{Rule: receipt.ScaledDown, Evidence: "3 machines for 2 replicas, first in the order of deletion by: older"},
		},
		{"scaled down, by priority", func() World {
			w := reasonWorld(2, "n", "m", "o")
			w.Owned[1].Annotations[v1alpha1.AnnotationPriority] = "2"
			return w
		}, receipt.Reason{
			Rule: receipt.ScaledDown, Evidence: "3 machines for 2 replicas, first in the order of deletion by: lower priority annotation",
		}},
		{"scaled down to none", func() World { return reasonWorld(0, "m") }, receipt.Reason{
			Rule: receipt.ScaledDown, Evidence: "1 machines for 0 replicas",
		}},
		{"scaled down, named by the autoscaler", func() World {
			w := reasonWorld(2, "n", "m", "o")
			w.Owned[1].Annotations[v1alpha1.AnnotationPriority] = v1alpha1.PriorityTriggered
			return w
		}, receipt.Reason{Rule: receipt.NamedByAutoscaler, Evidence: "priority 1 set by a client, 3 machines for 2 replicas"}},
		{"named and marked by the autoscaler", func() World {
			w := reasonWorld(1, "m", "n")
			w.Owned[0].Annotations[v1alpha1.AnnotationPriority] = v1alpha1.PriorityTriggered
			w.Owned[0].Annotations[v1alpha1.AnnotationMarkedForDeletionTime] = "2024-01-01T00:00:00Z"
			w.Set.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler] = "2024-01-01T00:00:01Z"
			return w
		}, receipt.Reason{
			Rule: receipt.NamedByAutoscaler, Evidence: "priority 1 set by a client, marked for deletion at 2024-01-01T00:00:00Z; replicas 1",
		}},
		{"rolled out", func() World {
			w := reasonWorld(1, "m", "n")
			w.Set.Annotations[v1alpha1.AnnotationReplacedBy] = "new"
			return w
		}, receipt.Reason{Rule: receipt.RolledOut, Evidence: "rollout to MachineSet new, 2 machines for 1 replicas"}},
		{"rolled out, without a live list", func() World {
			w := reasonWorld(1, "m", "n")
			w.Set.Annotations[v1alpha1.AnnotationReplacedBy] = "new"
			w.IsReplaced, w.Live = true, nil
			return w
		}, receipt.Reason{Rule: receipt.RolledOut, Evidence: "rollout to MachineSet new, 2 machines for 1 replicas"}},
		{"unhealthy", func() World {
			w := reasonWorld(2, "m", "n")
			fails(&w, 0, v1alpha1.MachineOperationHealthCheck, "Ready=Unknown")
			return w
		}, receipt.Reason{Rule: receipt.Unhealthy, Evidence: "since " + since + ", disruption granted: Ready=Unknown"}},
		{"creation failed", func() World {
			w := reasonWorld(2, "m", "n")
			fails(&w, 0, v1alpha1.MachineOperationCreate, "no quota")
			return w
		}, receipt.Reason{Rule: receipt.CreationFailed, Evidence: "since " + since + ", disruption granted: no quota"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := c.world()
			v := Decide(w)
			if v.Do != Save {
				t.Fatalf("verdict %s, want that the intent is saved", v.Do)
			}
			in, err := machinefacts.ReadIntents(v.Set)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := in.Reason("m")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("intent (-want +got):\n%s", diff)
			}
			w.Set = v.Set
			if v := Decide(w); v.Do != Delete || v.Reasons["m"] != c.want {
				t.Errorf("verdict %s with reasons %v, want %s with %v", v.Do, v.Reasons, Delete, c.want)
			}
		})
	}
}

func TestReasonsOfADeletedSetNameTheSet(t *testing.T) {
	w := reasonWorld(1, "m")
	w.Set.DeletionTimestamp = &metav1.Time{Time: born}
	want := receipt.Reason{Rule: receipt.ParentDeleted, Evidence: "MachineSet s was deleted at " + born.Format(time.RFC3339)}
	if v := Decide(w); v.Do != Delete || v.Reasons["m"] != want {
		t.Errorf("verdict %s with reasons %v, want %s with %v", v.Do, v.Reasons, Delete, want)
	}
}

// TestReasonsStayOnTheSetUntilTheMachineRecordsItsDeletion: the machine controller reads them
// there, and may be later than the set's next intents.
func TestReasonsStayOnTheSetUntilTheMachineRecordsItsDeletion(t *testing.T) {
	w := reasonWorld(1, "m", "n")
	w.Set = Decide(w).Set
	w.Owned[0].DeletionTimestamp, w.Live = &metav1.Time{Time: w.Now}, nil
	if v := Decide(w); v.Do != Rest || v.AllObserved {
		t.Errorf("verdict %s, all observed %t; want that the observed intent stays", v.Do, v.AllObserved)
	}
	next := w
	next.Set = w.Set.DeepCopy()
	next.Set.Spec.Replicas, next.Live = 0, reasonWorld(1, "m", "n").Live
	v := Decide(next)
	if v.Do != Save {
		t.Fatalf("verdict %s, want the next intent to be saved", v.Do)
	}
	in, err := machinefacts.ReadIntents(v.Set)
	if err != nil {
		t.Fatal(err)
	}
	if _, known := in.Reason("m"); !known || in.Deletes("m") {
		t.Errorf("intents %v, want the reason of m in addition to the next intent", in)
	}
	w.Owned[0].Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
	if v := Decide(w); v.Do != Save {
		t.Errorf("verdict %s, want that the intent is removed", v.Do)
	}
}

// TestReasonsOfManyLeavingMachinesAreBounded: a set with more could not be read.
func TestReasonsOfManyLeavingMachinesAreBounded(t *testing.T) {
	w := reasonWorld(0)
	var in machinefacts.Intents
	for i := range 2 * burst {
		name := "m" + strconv.Itoa(i)
		m := reasonWorld(0, name).Owned[0]
		m.DeletionTimestamp = &metav1.Time{Time: born}
		w.Owned = append(w.Owned, m)
		in.Leaving = append(in.Leaving, machinefacts.Deletion{Name: name, UID: m.UID})
	}
	got := leaving(w, in)
	if len(got) != burst || !slices.Equal(got, in.Leaving[burst:]) {
		t.Errorf("%d reasons stay, want the last %d", len(got), burst)
	}
}
