package simkubelet

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
)

// attachDetachAnnotation is set by a kubelet for which the controller manager attaches volumes.
const attachDetachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// maxPods is the capacity for pods of every Node, the default of a kubelet.
const maxPods = 110

// newNode returns the Node that a VM registers.
func newNode(v guest.VM, health guest.Health, version string, now time.Time) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(v.CPU, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(v.MemoryMiB<<20, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(64<<30, resource.BinarySI),
	}
	if v.GPU > 0 {
		capacity["nvidia.com/gpu"] = *resource.NewQuantity(v.GPU, resource.DecimalSI)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: v.Name,
			Labels: map[string]string{
				corev1.LabelHostname:           v.Name,
				corev1.LabelOSStable:           "linux",
				corev1.LabelArchStable:         "amd64",
				corev1.LabelInstanceTypeStable: v.InstanceType,
				corev1.LabelTopologyRegion:     v.Region,
				corev1.LabelTopologyZone:       v.Zone,
			},
			Annotations: map[string]string{attachDetachAnnotation: "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: v.ProviderID},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions:  conditions(health, now, now),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: v.IP},
				{Type: corev1.NodeHostName, Address: v.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: v.ID, SystemUUID: v.ID, BootID: v.ID, KernelVersion: "simulated", OSImage: v.Image,
				ContainerRuntimeVersion: "simulated://1", KubeletVersion: version, OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
}

// conditions of a Node. A zero changed does not change the times of the last transitions.
func conditions(health guest.Health, now, changed time.Time) []corev1.NodeCondition {
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: readiness(health), Reason: "KubeletReady", Message: "simulated kubelet is posting ready status",
	}
	if health != guest.Healthy {
		ready.Reason, ready.Message = "KubeletNotReady", "the simulated container runtime is down"
	}
	all := []corev1.NodeCondition{
		ready,
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
	}
	for i := range all {
		all[i].LastHeartbeatTime = metav1.NewTime(now)
		all[i].LastTransitionTime = metav1.NewTime(changed)
	}
	return all
}

func readiness(health guest.Health) corev1.ConditionStatus {
	if health == guest.Healthy {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// ready returns the status of a Node's Ready condition, Unknown when it has none.
func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// statusPatch is a strategic merge patch of a Node's or pod's status.
func statusPatch(status any) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	return patch, nil
}

// labelPatch is a merge patch that sets a Node's labels.
func labelPatch(node *corev1.Node) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": node.Labels, "annotations": node.Annotations}})
	if err != nil {
		return nil, fmt.Errorf("encode labels: %w", err)
	}
	return patch, nil
}

// spread returns a time up to within that is constant for a VM, and differs between VMs.
func spread(id string, within time.Duration) time.Duration {
	sum := sha256.Sum256([]byte(id))
	return time.Duration(float64(within) * float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32))
}
