package lifecycle

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// beginsDeletion is a machine that is being deleted, and whose deletion the controller sees for the
// first time.
func beginsDeletion(w *World) {
	w.Machine.DeletionTimestamp = &metav1.Time{Time: born}
	w.Drain.State = drain.Drained // the Node has its condition, if there is one
}

func leavingNode(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: born} }

func triggering(w *World) {
	w.Machine.Annotations = map[string]string{v1alpha1.AnnotationTriggerDeletion: "true"}
}

// TestReasonIsRecordedOnTheMachineAndUsedForVMAndNode has every way by which a machine is deleted.
// The facts that show the reason are gone when VM and Node are deleted: only the record on the
// machine is left.
func TestReasonIsRecordedOnTheMachineAndUsedForVMAndNode(t *testing.T) {
	at := born.Format(time.RFC3339)
	decided := receipt.Because(receipt.ScaledDown, "5 machines for 4 replicas")
	for name, c := range map[string]struct {
		world World
		want  receipt.Reason
	}{
		"by its set":        {fresh(created, joined, node(), func(w *World) { w.Decided = decided }), decided},
		"by its set, first": {fresh(created, joined, node(leavingNode), triggering, func(w *World) { w.Decided = decided }), decided},
		"by a client": {fresh(created, joined, node()), receipt.Reason{
			Rule: receipt.MachineDeleted, Evidence: "at " + at + ", by a client; the fleet has recorded no decision",
		}},
		"with its Node": {fresh(created, joined, node(leavingNode)), receipt.Reason{
			Rule: receipt.NodeDeleted, Evidence: "Node m was deleted at " + at + " by another client",
		}},
		"by its annotation": {fresh(created, joined, node(), triggering), receipt.Reason{
			Rule: receipt.DeletionTriggered, Evidence: "annotation " + v1alpha1.AnnotationTriggerDeletion + " on the Machine",
		}},
		"by the Node's": {
			fresh(created, joined, node(func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationTriggerDeletion] = "true" })),
			receipt.Reason{Rule: receipt.DeletionTriggered, Evidence: "annotation " + v1alpha1.AnnotationTriggerDeletion + " on Node m"},
		},
		"a forged condition": {fresh(created, joined, node(), withReason("ScaledDown")), receipt.Reason{
			Rule: receipt.MachineDeleted, Evidence: "at " + at + ", by a client; the fleet has recorded no decision",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.world
			beginsDeletion(&w)
			v := Decide(w)
			if v.Do != Save || v.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating {
				t.Fatalf("verdict %+v, want the phase Terminating to be saved", v)
			}
			got := slices.DeleteFunc(slices.Clone(v.Machine.Status.Conditions), func(c corev1.NodeCondition) bool { return !isReason(c) })
			if len(got) != 1 || got[0].Reason != string(c.want.Rule) || got[0].Message != c.want.Evidence || got[0].Status != corev1.ConditionTrue ||
				!got[0].LastTransitionTime.Equal(&metav1.Time{Time: born}) {
				t.Errorf("conditions %+v, want one of %v", got, c.want)
			}
			w.Machine, w.Decided = v.Machine, receipt.Reason{}
			delete(w.Machine.Annotations, v1alpha1.AnnotationTriggerDeletion)
			node()(&w)
			if v := Decide(w); v.Do != DeleteVM || v.Why != c.want {
				t.Errorf("verdict %s for %v, want %s for %v", v.Do, v.Why, DeleteVM, c.want)
			}
			w.VM = VMFact{State: VMAbsent, Gone: true}
			if v := Decide(w); v.Do != DeleteNode || v.Why != c.want {
				t.Errorf("verdict %s for %v, want %s for %v", v.Do, v.Why, DeleteNode, c.want)
			}
			w.Node = NodeFact{State: NodeAbsent}
			if v := Decide(w); len(v.Events) != 1 ||
				v.Events[0].Message != "The machine and its VM cloud:///i-1 are deleted; reason: "+c.want.Text() {
				t.Errorf("Events %v, want one with %v", v.Events, c.want)
			}
		})
	}
}

// withReason is a machine with the condition of one that is being deleted.
func withReason(rule string) func(*World) {
	return func(w *World) {
		w.Machine.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.MachineDeleting, Status: corev1.ConditionTrue, Reason: rule, Message: "a client's"},
		}
	}
}

// TestReasonOfAnUnknownRuleIsNotUsed: the rule is a label of a metric, and clients that may write
// the status could have set it.
func TestReasonOfAnUnknownRuleIsNotUsed(t *testing.T) {
	w := fresh(created, joined, node(), withReason("Forged"))
	beginsDeletion(&w)
	w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
	if v := Decide(w); v.Do != DeleteVM || v.Why.Rule != receipt.MachineDeleted {
		t.Errorf("verdict %s for %v, want %s for %s", v.Do, v.Why, DeleteVM, receipt.MachineDeleted)
	}
}

// TestReasonOfDeletedMachinesIsThatOfTheDecision has the ways by which the controller of machines
// deletes one itself.
func TestReasonOfDeletedMachinesIsThatOfTheDecision(t *testing.T) {
	for name, c := range map[string]struct {
		world World
		want  receipt.Rule
	}{
		"annotation":      {fresh(created, joined, node(), triggering), receipt.DeletionTriggered},
		"Node is deleted": {fresh(created, joined, node(leavingNode)), receipt.NodeDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			if v := Decide(c.world); v.Do != DeleteMachine || v.Why.Rule != c.want || v.Why.Evidence == "" {
				t.Errorf("verdict %s for %v, want %s for %s", v.Do, v.Why, DeleteMachine, c.want)
			}
		})
	}
}
