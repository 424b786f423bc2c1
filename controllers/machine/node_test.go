package machine

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// A cache that is late shows the Node without our finalizer. Deleting it then would leave it for ever.
func TestANodeIsNotDeletedWithOurFinalizer(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "node", Finalizers: []string{v1alpha1.NodeFinalizerName, "other/one"}}}
	cluster := fake.NewClientset(node)
	c, p := tokenBench(t, cluster, "u")
	stale := node.DeepCopy()
	stale.Finalizers = nil
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: stale}
	if err := c.deleteNode(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, action := range cluster.Actions() {
		verbs = append(verbs, action.GetVerb())
		if patch, ok := action.(clienttesting.PatchAction); ok {
			want := `{"metadata":{"$deleteFromPrimitiveList/finalizers":["node.machine.sapcloud.io/machine-controller"],"uid":"node"}}`
			if got := string(patch.GetPatch()); got != want {
				t.Errorf("patch %s, want %s", got, want)
			}
		}
	}
	if !slices.Equal(verbs, []string{"patch", "delete"}) {
		t.Errorf("requests %v, want a patch and a delete", verbs)
	}
	if p.world.Node.State != lifecycle.NodeAbsent {
		t.Errorf("the Node is in state %d", p.world.Node.State)
	}
}
