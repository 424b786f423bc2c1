//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// dongle is a resource that no kubelet reports.
const dongle corev1.ResourceName = "example.com/dongle"

// nodesOf returns the Nodes of the running machines of a pool, by name.
func (s *space) nodesOf(ctx context.Context, pool string) (map[string]*corev1.Node, error) {
	machines, err := s.machines(ctx, pool)
	if err != nil {
		return nil, err
	}
	nodes := map[string]*corev1.Node{}
	for _, m := range machines {
		node, err := s.lab.Target.CoreV1().Nodes().Get(ctx, m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		nodes[node.Name] = node
	}
	return nodes, nil
}

// onNodes waits until every Node of a pool passes a check.
func (s *space) onNodes(what, pool string, check func(n *corev1.Node, wrong *deviations)) {
	s.Helper()
	s.eventually(what, func(ctx context.Context) error {
		nodes, err := s.nodesOf(ctx, pool)
		if err != nil {
			return err
		}
		var wrong deviations
		for _, node := range nodes {
			check(node, &wrong)
		}
		return wrong.err()
	})
}

// patchNode merges a patch into a Node, as an administrator.
func (s *space) patchNode(name, patch string, subresource ...string) {
	s.Helper()
	_, err := s.lab.Target.CoreV1().Nodes().Patch(s.Context(), name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresource...)
	s.must(err)
}

func hasTaint(n *corev1.Node, key, value string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Value == value })
}

// nodeTemplate is the patch of a MachineDeployment that sets the nodeTemplate.
func nodeTemplate(t *testing.T, template v1alpha1.NodeTemplateSpec) string {
	t.Helper()
	text, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeTemplate":%s}}}}`, text)
}

// TestNodeTemplate: Nodes get the content of template and class, from the first write of the fleet
// on, and changes of it, without changes of other clients' labels, annotations and taints, and
// without a rollout. A Node whose kubelet resets the virtual capacity gets it again. A machine
// whose template the API server rejects runs nevertheless, with one Event.
func TestNodeTemplate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "node-template", "")
	class := func(virtual string) {
		t.Helper()
		s.patch("machineclasses", harness.ClassName, `{"nodeTemplate":{"capacity":{"cpu":"2","gpu":"0","memory":"8Gi"},"instanceType":"small",`+
			`"region":"sim-1","zone":"sim-1a","virtualCapacity":`+virtual+`}}`)
	}
	class(`{"example.com/dongle":"4"}`)
	template := v1alpha1.NodeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "a", "old": "1"}, Annotations: map[string]string{"team": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}},
	}
	s.deploy("pool", 2, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.NodeTemplateSpec = template })
	rejected := s.createMachine(s.name+"-rejected", func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"no label has blanks": "1"}
	})
	s.running("", 3)
	before := s.joined()
	s.oneEvent(rejected.UID, v1alpha1.EventNodeRefused)
	s.onNodes("the Nodes match template and class", "pool", func(n *corev1.Node, wrong *deviations) {
		wrong.unless(n.Labels["pool"] == "a" && n.Labels["old"] == "1", "%s has labels %v", n.Name, n.Labels)
		wrong.unless(n.Annotations["team"] == "b", "%s has annotations %v", n.Name, n.Annotations)
		wrong.unless(hasTaint(n, "gpu", "yes"), "%s has taints %v", n.Name, n.Spec.Taints)
		wrong.unless(hasDongles(n, 4), "%s reports %v", n.Name, n.Status.Capacity)
	})

	nodes, err := s.nodesOf(t.Context(), "pool")
	s.must(err)
	some := slices.Min(slices.Collect(maps.Keys(nodes)))
	s.patchNode(some, `{"metadata":{"labels":{"his":"own","pool":"meddled"}}}`)
	s.patchNode(some, `{"status":{"capacity":{"example.com/dongle":"0"}}}`, "status") // as a kubelet does after a restart
	s.onNodes("the Node has its values again", "pool", func(n *corev1.Node, wrong *deviations) {
		wrong.unless(n.Labels["pool"] == "a" && hasDongles(n, 4), "%s has labels %v and reports %v", n.Name, n.Labels, n.Status.Capacity)
	})
	template.Labels = map[string]string{"pool": "a", "new": "1"}
	template.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "some", Effect: corev1.TaintEffectNoSchedule}}
	s.patch("machinedeployments", "pool", `{"spec":{"template":{"spec":{"nodeTemplate":null}}}}`)
	s.patch("machinedeployments", "pool", nodeTemplate(t, template))
	class("null")
	s.patch("machines", rejected.Name, `{"spec":{"nodeTemplate":{"metadata":{"labels":{"no label has blanks":null,"pool":"a","new":"1"}}}}}`)
	s.onNodes("the Nodes match the changed template and class", "", func(n *corev1.Node, wrong *deviations) {
		_, old := n.Labels["old"]
		wrong.unless(n.Labels["pool"] == "a" && n.Labels["new"] == "1" && !old, "%s has labels %v", n.Name, n.Labels)
		wrong.unless(n.Name == rejected.Name || hasTaint(n, "gpu", "some") && !hasTaint(n, "gpu", "yes"), "%s has taints %v",
			n.Name, n.Spec.Taints)
		wrong.unless(n.Name != some || n.Labels["his"] == "own", "%s has lost another client's label: %v", n.Name, n.Labels)
		_, reports := n.Status.Capacity[dongle]
		wrong.unless(!reports, "%s reports %v", n.Name, n.Status.Capacity)
	})
	if after := s.joined(); !maps.Equal(before, after) {
		t.Errorf("machines and their VMs were %v and are %v", before, after)
	}
	s.remove("machinedeployments", "pool")
	s.remove("machines", rejected.Name)
	s.gone()
}

// hasDongles reports whether a Node reports so many dongles.
func hasDongles(n *corev1.Node, want int64) bool {
	got, reports := n.Status.Capacity[dongle]
	return reports && got.Value() == want
}
