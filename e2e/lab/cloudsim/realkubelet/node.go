package realkubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// taintUninitialized is on the Node of a kubelet that waits for its cloud's controller manager.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// initializeNode does what a cloud controller manager does for a new Node, as soon as the Node
// exists.
func (h *Host) initializeNode(ctx context.Context, m *machine) error {
	nodes := h.cfg.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, m.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // Not yet.
	}
	if err != nil {
		return fmt.Errorf("look for Node %s: %w", m.Name, err)
	}
	if node.Spec.ProviderID != m.ProviderID {
		h.say(m, fmt.Sprintf("Node %s exists already with provider ID %q: it keeps that", m.Name, node.Spec.ProviderID))
		return nil
	}
	if !slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP }) {
		patch, err := addressPatch(m.IP, m.Name)
		if err != nil {
			return err
		}
		if node, err = nodes.Patch(ctx, m.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return fmt.Errorf("set the addresses of Node %s: %w", m.Name, err)
		}
	}
	metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelTopologyRegion, m.Region)
	metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelTopologyZone, m.Zone)
	metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelInstanceTypeStable, m.InstanceType)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintUninitialized })
	if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		if apierrors.IsConflict(err) {
			return nil // The kubelet wrote, too: look again.
		}
		return fmt.Errorf("initialize Node %s: %w", m.Name, err)
	}
	m.Joined = true
	h.cloud.Joined(m.ID, "joined as Node "+m.Name)
	return nil
}

func addressPatch(ip, name string) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: ip},
		{Type: corev1.NodeHostName, Address: name},
	}}})
	if err != nil {
		return nil, fmt.Errorf("encode addresses: %w", err)
	}
	return patch, nil
}
