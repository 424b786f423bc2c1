package objectcache

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// mostHeap is how much live heap a machine takes in the caches, with its Node, as kubelets and
// clouds write Nodes.
const mostHeap = 20_000

func TestHeapOfAMachineWithItsNode(t *testing.T) {
	const machines = 500
	all, nodes := NewStore[*v1alpha1.Machine](), NewStore[*corev1.Node]()
	before := liveHeap()
	for i := range machines {
		name := fmt.Sprintf("shoot--project--cluster-worker-a-z1-6f4b9-%05d", i)
		node := nodeOfKubelet(name)
		put(t, nodes, node)
		put(t, all, machineOf(node))
	}
	perMachine := (liveHeap() - before) / machines
	t.Logf("a machine with its Node takes %d bytes of live heap", perMachine)
	if perMachine > mostHeap {
		t.Errorf("a machine with its Node takes %d bytes of live heap, want at most %d", perMachine, mostHeap)
	}
	runtime.KeepAlive([]any{all, nodes})
}

func liveHeap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// put stores an object as a watch receives it: each of its texts has its own memory.
func put[T metav1.Object](t *testing.T, into *Store[T], obj T) {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var decoded T
	if err := json.Unmarshal(data, &decoded); err != nil {
		t.Fatal(err)
	}
	received, err := Received[T](decoded)
	if err != nil {
		t.Fatal(err)
	}
	into.Put(received, true)
}

// keys returns a map with so many entries, as long as those of labels are.
func keys(prefix string, n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("%s.example.cloud/topology-of-%02d", prefix, i)] = fmt.Sprintf("value-of-the-key-%02d", i)
	}
	return all
}

// nodeOfKubelet returns a Node as a kubelet, a cloud controller and a node problem detector write
// it.
func nodeOfKubelet(name string) *corev1.Node {
	now, amounts := metav1.NewTime(time.Unix(1_800_000_000, 0)), corev1.ResourceList{}
	for _, of := range []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi"} {
		amounts[of] = resource.MustParse("64886292Ki")
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("u-" + name), ResourceVersion: "123456789", CreationTimestamp: now,
			Labels: keys("node", 24), Annotations: keys("notes", 8), Finalizers: []string{v1alpha1.NodeFinalizerName},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`"` + strings.Repeat("f", 6000) + `"`)}},
		},
		Spec: corev1.NodeSpec{
			PodCIDR: "100.64.0.0/24", PodCIDRs: []string{"100.64.0.0/24"}, ProviderID: "cloud:///region/zone/" + name,
		},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Addresses: []corev1.NodeAddress{{Type: "InternalIP", Address: "10.250.0.3"}, {Type: "Hostname", Address: name}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: strings.Repeat("0", 32), SystemUUID: strings.Repeat("0", 36), BootID: strings.Repeat("0", 36),
				KernelVersion: "6.12.1-cloud",
			},
		},
	}
	for i := range 12 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(fmt.Sprint("FrequentProblem", i)), Status: corev1.ConditionFalse, Reason: "NoFrequentProblem",
			Message: "the component is functioning properly", LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	for i := range 50 {
		digest := fmt.Sprintf("registry.example.cloud/project/image-%d@sha256:%s", i, strings.Repeat("0", 64))
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1 << 26, Names: []string{digest, digest[:60]}})
	}
	return n
}

// machineOf returns the running machine of a Node.
func machineOf(node *corev1.Node) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: *node.ObjectMeta.DeepCopy()}
	m.Namespace, m.UID = "shoot--project--cluster", types.UID("m-"+node.Name)
	m.Labels, m.Annotations = keys("machine", 6), keys("notes", 4)
	m.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "MachineSet", Name: "worker-a-z1-6f4b9", UID: "s", Controller: new(true)},
	}
	m.Spec.ProviderID, m.Spec.Class = node.Spec.ProviderID, v1alpha1.ClassSpec{Kind: "MachineClass", Name: "worker-a-z1-6f4b9"}
	m.Spec.NodeTemplateSpec.Labels = keys("template", 8)
	m.Status = v1alpha1.MachineStatus{
		Conditions:    node.Status.Conditions,
		CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: node.CreationTimestamp},
		LastOperation: v1alpha1.LastOperation{
			Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateSuccessful, LastUpdateTime: node.CreationTimestamp,
			Description: "Machine " + node.Name + " successfully joined the cluster",
		},
	}
	return m
}
