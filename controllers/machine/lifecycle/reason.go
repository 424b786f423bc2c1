package lifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// explained returns a verdict on a machine that is being deleted with the reason for what it
// deletes.
func explained(w World, v Verdict) Verdict {
	if v.Do == DeleteVM || v.Do == DeleteNode {
		v.Why = whyDeleted(w)
	}
	return v
}

// whyDeleted returns why the machine is being deleted: as it was recorded when its deletion began,
// or as it can be seen.
func whyDeleted(w World) receipt.Reason {
	if why, recorded := recordedReason(w.Machine); recorded {
		return why
	}
	return whySeen(w)
}

// whySeen returns why the machine is being deleted as far as the facts show. Before anything is
// deleted of the machine, its set still has the reason for which the set has deleted it.
func whySeen(w World) receipt.Reason {
	if w.Decided.IsValid() {
		return w.Decided
	}
	if isToBeDeleted(w) {
		return whyTriggered(w)
	}
	if node, _ := ownNode(w); node != nil && node.DeletionTimestamp != nil {
		return whyNodeDeleted(node)
	}
	return receipt.Because(receipt.MachineDeleted, fmt.Sprintf("at %s, by a client; the fleet has recorded no decision",
		w.Machine.DeletionTimestamp.UTC().Format(time.RFC3339)))
}

// whyTriggered returns the reason for a machine whose deletion an annotation requests.
func whyTriggered(w World) receipt.Reason {
	on := "the Machine"
	if w.Machine.Annotations[v1alpha1.AnnotationTriggerDeletion] != "true" {
		on = "Node " + NodeName(w.Machine)
	}
	return receipt.Because(receipt.DeletionTriggered, fmt.Sprintf("annotation %s on %s", v1alpha1.AnnotationTriggerDeletion, on))
}

// whyNodeDeleted returns the reason for a machine whose Node is being deleted.
func whyNodeDeleted(node *corev1.Node) receipt.Reason {
	return receipt.Because(receipt.NodeDeleted, fmt.Sprintf("Node %s was deleted at %s by another client", node.Name, node.DeletionTimestamp.UTC().Format(time.RFC3339)))
}

// recordReason records on a machine, which is about to be Terminating, why it is deleted. It is a
// condition, because the status is written at that time anyway, and replaces what a Node or a
// client may have left under that type.
func recordReason(w World, m *v1alpha1.Machine) {
	why := whySeen(w)
	m.Status.Conditions = append(slices.DeleteFunc(slices.Clone(m.Status.Conditions), isReason), corev1.NodeCondition{
		Type: v1alpha1.MachineDeleting, Status: corev1.ConditionTrue, Reason: string(why.Rule), Message: why.Evidence,
		LastHeartbeatTime: metav1.NewTime(w.Now), LastTransitionTime: metav1.NewTime(w.Now),
	})
}

// recordedReason returns the reason that is recorded on a machine; recorded is false before its
// deletion has begun, and for one whose deletion another controller has begun.
func recordedReason(m *v1alpha1.Machine) (why receipt.Reason, recorded bool) {
	i := slices.IndexFunc(m.Status.Conditions, isReason)
	if i < 0 || m.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating {
		return receipt.Reason{}, false
	}
	why = receipt.Because(receipt.Rule(m.Status.Conditions[i].Reason), m.Status.Conditions[i].Message)
	return why, why.IsValid()
}

func isReason(c corev1.NodeCondition) bool { return c.Type == v1alpha1.MachineDeleting }
