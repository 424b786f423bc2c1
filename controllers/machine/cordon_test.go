package machine

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// A machine that the cluster-autoscaler has named, and that stays, has its Node uncordoned: unless
// a user has cordoned it, which only the API server knows, and no cache.
func TestOnlyTheAutoscalersCordonIsRemoved(t *testing.T) {
	for manager, want := range map[string]bool{"cluster-autoscaler": false, "kubectl": true} {
		t.Run(manager, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.runs()
				b.changeNode(func(node *corev1.Node) {
					node.Spec.Unschedulable = true
					node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`)}}
				})
				shown := b.node()
				shown.ManagedFields = nil
				b.cluster.Nodes.Apply(shown, false)
				b.server.Merge("machines", "n", "m", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
					v1alpha1.AnnotationUncordonAt, time.Now().Add(15*time.Second).UTC().Format(time.RFC3339)))
				b.pass(14 * time.Second)
				if !b.node().Spec.Unschedulable {
					t.Error("the Node is uncordoned while the autoscaler may still cordon it")
				}
				b.pass(time.Minute)
				if got := b.node().Spec.Unschedulable; got != want {
					t.Errorf("cordoned: %t, want %t", got, want)
				}
				if at, left := b.get().Annotations[v1alpha1.AnnotationUncordonAt]; left {
					t.Errorf("the request is still on the machine, at %s", at)
				}
			})
		})
	}
}
