package replica

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// forger is the namespace of a tenant who writes Machines that name the Nodes and VMs of others.
const forger = "forger"

// unmanagedVMs is the number of VMs that no Machine of the control cluster has ever had.
const unmanagedVMs = 3

// anotherCluster is the ID of another control cluster, whose fleet uses the same account and the
// same namespaces.
const anotherCluster = "another"

// createUnmanaged creates two Nodes that no Machine has ever had, of which one says of which VM it
// is, and a VM of another control cluster.
func (t *trial) createUnmanaged() {
	t.cloud.Add(fakecloud.Resource{Joined: true, ControlCluster: anotherCluster, Resource: driver.Resource{
		Kind: driver.ResourceVM, ID: "sim:///another", Namespace: "a", Machine: "another", MachineUID: "another", NodeName: "another",
	}})
	for i, providerID := range []string{"", "sim:///control-plane"} {
		v := t.cloud.Add(fakecloud.Resource{Joined: true, Resource: driver.Resource{
			Kind: driver.ResourceVM, ID: "sim:///control-plane", NodeName: fmt.Sprint("control-plane-", i),
		}})
		spec := map[string]any{}
		if providerID != "" {
			spec["providerID"] = providerID
		}
		t.put(t.target, "nodes", map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": v.NodeName}, "spec": spec,
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		})
	}
	t.createClass(forger)
}

// forge makes the tenant create a Machine that names the Node and the VM of another, and delete it
// after some time.
func (t *trial) forge() {
	nodes := t.target.List("nodes")
	if len(nodes) == 0 {
		return
	}
	victim := nodes[t.random.IntN(len(nodes))]
	providerID := providerIDOf(victim)
	t.forged++
	name := []string{fmt.Sprint("forged-", t.forged), victim.GetName()}[t.random.IntN(2)]
	if t.control.Get("machines", forger, name) != nil {
		return
	}
	labels := map[string]any{v1alpha1.LabelNode: victim.GetName()}
	if t.random.IntN(2) == 0 {
		labels["force-deletion"] = "true"
	}
	annotations := map[string]any{
		v1alpha1.AnnotationApplied: `{"labels":["node-restriction.kubernetes.io/pool"],"taints":["quarantine:NoExecute"]}`,
	}
	if t.random.IntN(4) == 0 {
		annotations[v1alpha1.AnnotationTriggerDeletion] = "true"
	}
	if t.random.IntN(4) == 0 {
		annotations[v1alpha1.AnnotationPreserve] = v1alpha1.PreserveNow
	}
	spec := map[string]any{
		"class": map[string]any{"kind": "MachineClass", "name": "small"}, "drainTimeout": "1s",
		"providerID":   []string{providerID, "other:///" + strings.TrimPrefix(providerID, "sim:///"), "nonsense"}[t.random.IntN(3)],
		"nodeTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"forged": "yes"}}},
	}
	if spec["providerID"] == "" {
		spec["providerID"] = "sim:///control-plane"
	}
	phases := []v1alpha1.MachinePhase{
		"", v1alpha1.MachinePending, v1alpha1.MachineRunning, v1alpha1.MachineFailed, v1alpha1.MachineTerminating,
	}
	t.logf("a tenant forges machine %s, with Node %s and VM %s", name, victim.GetName(), spec["providerID"])
	t.put(t.control, "machines", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "spec": spec,
		"metadata": map[string]any{
			"namespace": forger, "name": name, "labels": labels, "annotations": annotations, "finalizers": []any{v1alpha1.FinalizerName},
		},
		"status": map[string]any{"currentStatus": map[string]any{"phase": string(phases[t.random.IntN(len(phases))])}},
	})
	t.later = append(t.later, event{time.Now().Add(t.between(0, 30*time.Second)), func() { t.control.Delete("machines", forger, name) }})
}

// ofForger counts the machines of the tenant that exist.
func (t *trial) ofForger() (n int) {
	for _, o := range t.control.List("machines") {
		if o.GetNamespace() == forger {
			n++
		}
	}
	return n
}

// touched checks a write of a Node at the moment of its send: no replica writes a Node that has no
// Machine, except for the annotation of the leader, or of the owner of a namespace with a target
// cluster for itself, and no replica deletes a Node whose VM lives.
func (o *oracle) touched(q request, byLeader bool) {
	_, rest, isNode := strings.Cut(q.path, "/nodes/")
	if !isNode || q.place != atTarget && o.target != o.control {
		return
	}
	name, _, _ := strings.Cut(rest, "/")
	if strings.HasPrefix(name, "control-plane-") && (!byLeader && !o.options.Targets.ByNamespace || q.method != http.MethodPatch) {
		o.fail("%s does %s of Node %s, which has no machine", q.replica, q.method, name)
	}
	if q.method != http.MethodDelete {
		return
	}
	for _, v := range o.cloud.Live() {
		if v.NodeName == name && v.Joined && !o.mayBeUndeleted() {
			o.fail("%s deletes Node %s, whose VM %s lives", q.replica, name, v.ID)
		}
	}
}

// checkNodes checks the Nodes: each is bound to the machine of its VM or to none, has nothing that
// a tenant has requested, and is not drained while its machine exists.
func (t *trial) checkNodes() {
	vms := map[string]fakecloud.Resource{}
	for _, v := range t.cloud.All() {
		vms[v.ID] = v
	}
	for _, node := range t.target.List("nodes") {
		providerID := providerIDOf(node)
		v, known := vms[providerID]
		ref, bound := v1alpha1.MachineOf(node)
		switch {
		case node.GetLabels()["forged"] != "":
			t.fail("Node %s has the label of a tenant", node.GetName())
		case !known || !bound: // its VM was created before a restore, or no replica has claimed the Node yet
		case ref.Namespace != v.Namespace || ref.Name != v.Machine || ref.UID != v.MachineUID:
			t.fail("Node %s of machine %s/%s (%s) is bound to %s", node.GetName(), v.Namespace, v.Machine, v.MachineUID, ref)
		case !v.Live() || !t.oracle.neverRestored():
		default:
			cordoned, _, _ := unstructured.NestedBool(node.Object, "spec", "unschedulable")
			stored := t.control.Get("machines", v.Namespace, v.Machine)
			isUpdated := node.GetLabels()[v1alpha1.LabelSelectedForUpdate] == "true" // in place
			if cordoned && !isUpdated && stored != nil && stored.GetUID() == v.MachineUID && stored.GetDeletionTimestamp() == nil {
				t.fail("Node %s is cordoned, and its machine %s/%s stays", node.GetName(), v.Namespace, v.Machine)
			}
		}
	}
}

// neverRestored reports whether no etcd was restored.
func (o *oracle) neverRestored() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.restored.IsZero()
}
