package lifecycle

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// autoscalerManager begins the name under which the API server records what the cluster-autoscaler
// has written: client-go takes that name from the one of the program.
const autoscalerManager = "cluster-autoscaler"

// findCordon reports whether the Node has to be read past the cache before it is uncordoned: who
// has cordoned it stands in metadata.managedFields, which caches do not keep.
func findCordon(w World, node *corev1.Node) bool {
	at, asked := uncordonAt(w.Machine)
	return asked && !w.Now.Before(at) && node.Spec.Unschedulable && !w.Node.Live
}

// isCordonedByAutoscaler reports whether the API server has recorded that the cluster-autoscaler,
// and no other client, has cordoned the Node. A cordon of unknown origin counts as a user's.
func isCordonedByAutoscaler(node *corev1.Node) bool {
	found := false
	for _, entry := range node.ManagedFields {
		if !hasCordoned(entry) {
			continue
		}
		if !strings.HasPrefix(entry.Manager, autoscalerManager) {
			return false
		}
		found = true
	}
	return found && node.Spec.Unschedulable
}

// hasCordoned reports whether a client has set spec.unschedulable of a Node. No client sets it to
// false: false is its absence.
func hasCordoned(entry metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Spec struct {
			Unschedulable *struct{} `json:"f:unschedulable"`
		} `json:"f:spec"`
	}
	return entry.FieldsV1 != nil && json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && fields.Spec.Unschedulable != nil
}
