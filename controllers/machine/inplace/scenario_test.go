package inplace

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// running is a machine that runs, in a set that is not an old one, with a Node without requests.
func running() World {
	return World{
		Now: now,
		Machine: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "m"},
			Status:     v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning}},
		},
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"his": "own"}, Annotations: map[string]string{"his": "own"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "his", Effect: corev1.TaintEffectNoSchedule}}},
		},
	}
}

// TestScenarios runs the scenarios in testdata. Each fact changes running():
//
//	phase: InPlaceUpdating         of the machine
//	set: old                       the machine is in an old set, or its set is not seen
//	labels: candidate selected     of the Node; and successful, failed, or any other result
//	stage: SelectedForUpdate       the reason of the Node's condition, since an hour
//	why: the disk is full          the agent's reason for a failure
//	cordoned                       the Node is cordoned, with the taint that Kubernetes adds
//	drained: Node m is drained     how the drain has ended
//	no taint                       a Node that was updated gets no taint critical-components-not-ready
//	awaits components              the Node has that taint already
//
// The verdict lists what changes on the Node, and "drain" if it is to be drained.
func TestScenarios(t *testing.T) {
	scenario.Run(t, "testdata/*.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		w := running()
		for _, fact := range s.Given {
			if err := report(&w, fact); err != nil {
				t.Fatalf("line %d: %v", fact.Line, err)
			}
		}
		before := w.Node.DeepCopy()
		v := Decide(w)
		if diff := cmp.Diff(before, w.Node); diff != "" {
			t.Errorf("Decide has changed the Node that it was given:\n%s", diff)
		}
		if again := Decide(w); !reflect.DeepEqual(v, again) {
			t.Errorf("the second call of Decide returns another result: %+v and %+v", v, again)
		}
		return describe(w, v)
	})
}

func report(w *World, fact scenario.Fact) error {
	n := w.Node
	switch fact.Key {
	case "phase":
		w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachinePhase(fact.Value)
	case "set":
		w.InOldSet = fact.Value == "old"
	case "labels":
		for word := range strings.FieldsSeq(fact.Value) {
			switch word {
			case "candidate":
				n.Labels[v1alpha1.LabelCandidateForUpdate] = "true"
			case "selected":
				n.Labels[v1alpha1.LabelSelectedForUpdate] = "true"
			default:
				n.Labels[v1alpha1.LabelUpdateResult] = word
			}
		}
	case "stage":
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: fact.Value, Message: "As before.",
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		})
	case "why":
		n.Annotations[v1alpha1.AnnotationUpdateFailedReason] = fact.Value
	case "cordoned":
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	case "drained":
		w.Drained = fact.Value
	case "no taint":
		w.NoComponentsTaint = true
	case "awaits components":
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule})
	default:
		return fmt.Errorf("expected a fact that TestScenarios lists, got %q", fact.Key)
	}
	return nil
}

func describe(w World, v Verdict) string {
	var out []string
	line := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	keys := func(what string, before, after map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(before)) {
			if _, there := after[key]; !there {
				line("without the %s %s", what, key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(after)) {
			if before[key] != after[key] {
				line("%s %s: %s", what, key, after[key])
			}
		}
	}
	keys("label", w.Node.Labels, v.Node.Labels)
	keys("annotation", w.Node.Annotations, v.Node.Annotations)
	if w.Node.Spec.Unschedulable != v.Node.Spec.Unschedulable {
		line("unschedulable: %v", v.Node.Spec.Unschedulable)
	}
	if !slices.Equal(w.Node.Spec.Taints, v.Node.Spec.Taints) {
		var taints []string
		for _, t := range v.Node.Spec.Taints {
			taints = append(taints, t.Key)
		}
		line("taints: %s", strings.Join(taints, ", "))
	}
	if machinefacts.InPlaceCondition(w.Node) != nil && machinefacts.InPlaceCondition(v.Node) == nil {
		line("without the condition %s", v1alpha1.NodeInPlaceUpdate)
	}
	if was, is := machinefacts.InPlaceCondition(w.Node), machinefacts.InPlaceCondition(v.Node); is != nil && (was == nil || *was != *is) {
		line("%s is %s since %s: %q", is.Reason, is.Status, is.LastTransitionTime.Sub(now), is.Message)
	}
	if v.Drain {
		line("drain")
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}
