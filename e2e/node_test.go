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
	"k8s.io/apimachinery/pkg/api/resource"
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
func (s *space) onNodes(what, pool string, check func(n *corev1.Node, wrong *complaints)) {
	s.Helper()
	s.eventually(what, func(ctx context.Context) error {
		nodes, err := s.nodesOf(ctx, pool)
		if err != nil {
			return err
		}
		var wrong complaints
		for _, node := range nodes {
			check(node, &wrong)
		}
		return wrong.err()
	})
}

// patchNode merges a patch into a Node, as an administrator.
func (s *space) patchNode(name, patch string, subresource ...string) {
	s.Helper()
	_, err := s.lab.Target.CoreV1().Nodes().Patch(s.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	s.must(err)
}

// nodeWrites counts the fleet's writes of Nodes since the position, by Node and subresource.
func (s *space) nodeWrites(since harness.AuditPosition) map[string]int {
	s.Helper()
	requests, err := s.lab.Requests(since)
	s.must(err)
	writes := map[string]int{}
	for _, r := range requests {
		if r.IsFleet() && r.IsWrite() && r.Resource == "nodes" && r.Code == 200 {
			writes[r.Name+"/"+r.Subresource]++
		}
	}
	return writes
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

// TestNodeTemplate: Nodes get the content of template and class, from the first write of the fleet on, and changes of it, without
// changes of other clients' labels, annotations and taints, and without a rollout.
func TestNodeTemplate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "node-template", "")
	template := v1alpha1.NodeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "a", "old": "1"}, Annotations: map[string]string{"team": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}},
	}
	position, err := s.lab.AuditEnd()
	s.must(err)
	s.deploy("pool", 2, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.NodeTemplateSpec = template })
	s.deploy("plain", 1)
	s.running("", 3)
	before := s.joined()
	s.onNodes("the Nodes match the template", "pool", func(n *corev1.Node, wrong *complaints) {
		wrong.unless(n.Labels["pool"] == "a" && n.Labels["old"] == "1", "%s has labels %v", n.Name, n.Labels)
		wrong.unless(n.Annotations["team"] == "b", "%s has annotations %v", n.Name, n.Annotations)
		wrong.unless(hasTaint(n, "gpu", "yes"), "%s has taints %v", n.Name, n.Spec.Taints)
	})
	for name, writes := range s.nodeWrites(position) {
		if _, ours := before[name[:len(name)-1]]; ours && writes != 1 {
			t.Errorf("%s was written %d times until its machine ran", name, writes)
		}
	}

	nodes, err := s.nodesOf(t.Context(), "pool")
	s.must(err)
	some := slices.Min(slices.Collect(maps.Keys(nodes)))
	s.patchNode(some, `{"metadata":{"labels":{"his":"own","pool":"meddled"}}}`)
	template.Labels = map[string]string{"pool": "a", "new": "1"}
	template.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "some", Effect: corev1.TaintEffectNoSchedule}}
	s.patch("machinedeployments", "pool", `{"spec":{"template":{"spec":{"nodeTemplate":null}}}}`)
	s.patch("machinedeployments", "pool", nodeTemplate(t, template))
	s.onNodes("the Nodes match the changed template", "pool", func(n *corev1.Node, wrong *complaints) {
		_, old := n.Labels["old"]
		wrong.unless(n.Labels["pool"] == "a" && n.Labels["new"] == "1" && !old, "%s has labels %v", n.Name, n.Labels)
		wrong.unless(hasTaint(n, "gpu", "some") && !hasTaint(n, "gpu", "yes"), "%s has taints %v", n.Name, n.Spec.Taints)
		wrong.unless(n.Name != some || n.Labels["his"] == "own", "%s has lost another client's label: %v", n.Name, n.Labels)
	})
	if after := s.joined(); !maps.Equal(before, after) {
		t.Errorf("machines and their VMs were %v and are %v", before, after)
	}
	s.remove("machinedeployments", "pool")
	s.remove("machinedeployments", "plain")
	s.gone()
}

// TestVirtualCapacity: Nodes report what the class adds, and nothing that it does not add any more.
func TestVirtualCapacity(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "capacity", "")
	class := func(virtual string) string {
		return `{"nodeTemplate":{"capacity":{"cpu":"2","gpu":"0","memory":"8Gi"},"instanceType":"small","region":"sim-1","zone":"sim-1a","virtualCapacity":` + virtual + `}}`
	}
	s.patch("machineclasses", harness.ClassName, class(`{"example.com/dongle":"4"}`))
	s.deploy("pool", 2)
	s.running("pool", 2)
	reports := func(want string) {
		t.Helper()
		s.onNodes("the Nodes report "+want+" dongles", "pool", func(n *corev1.Node, wrong *complaints) {
			got, there := n.Status.Capacity[dongle]
			if want == "no" {
				wrong.unless(!there, "%s reports %s", n.Name, got.String())
				return
			}
			wrong.unless(there && got.Cmp(resource.MustParse(want)) == 0, "%s reports %s of %v", n.Name, got.String(), n.Status.Capacity)
		})
	}
	reports("4")
	s.patch("machineclasses", harness.ClassName, class(`{"example.com/dongle":"6"}`))
	reports("6")
	nodes, err := s.nodesOf(t.Context(), "pool")
	s.must(err)
	some := slices.Min(slices.Collect(maps.Keys(nodes)))
	s.patchNode(some, `{"status":{"capacity":{"example.com/dongle":"0"}}}`, "status") // as a kubelet does after a restart
	reports("6")
	s.patch("machineclasses", harness.ClassName, `{"nodeTemplate":{"virtualCapacity":null}}`)
	reports("no")
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestRefusedNodeTemplate: a machine runs although the API server rejects its nodeTemplate, and has one Event about it.
func TestRefusedNodeTemplate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "node-refused", "")
	m := s.createMachine(s.name+"-a", func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"no label has blanks": "1"}
	})
	s.running("", 1)
	s.joined()
	s.oneEvent(m.UID, v1alpha1.EventNodeRefused)
	s.patch("machines", m.Name, `{"spec":{"nodeTemplate":{"metadata":{"labels":{"no label has blanks":null,"pool":"a"}}}}}`)
	s.onNodes("the Node has the valid labels", "", func(n *corev1.Node, wrong *complaints) {
		wrong.unless(n.Labels["pool"] == "a", "%s has labels %v", n.Name, n.Labels)
	})
	s.remove("machines", m.Name)
	s.gone()
}

// TestDeletionTriggered: the machine whose Node has the annotation is replaced, and the one whose Node is deleted.
func TestDeletionTriggered(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "triggered", "")
	s.deploy("pool", 2)
	s.running("pool", 2)
	before := s.joined()
	names := slices.Sorted(maps.Keys(before))
	s.patchNode(names[0], fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationTriggerDeletion))
	s.must(s.lab.Target.CoreV1().Nodes().Delete(t.Context(), names[1], metav1.DeleteOptions{}))
	s.eventually("both machines are replaced", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var wrong complaints
		for _, m := range machines {
			wrong.unless(!slices.Contains(names, m.Name), "%s is there, phase %s", m.Name, m.Status.CurrentStatus.Phase)
		}
		return wrong.err()
	})
	s.running("pool", 2)
	s.joined()
	s.remove("machinedeployments", "pool")
	s.gone()
}
