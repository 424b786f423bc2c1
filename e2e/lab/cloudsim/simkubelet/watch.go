package simkubelet

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// indexNode finds pods by the name of their Node.
const indexNode = "node"

// watch prepares the informers on Nodes and on pods that have one, both trimmed to the fields used
// here.
func (h *Host) watch() error {
	h.nodes = coreinformers.NewNodeInformer(h.cfg.Client, 0, cache.Indexers{})
	h.bound = coreinformers.NewFilteredPodInformer(h.cfg.Client, metav1.NamespaceAll, 0,
		cache.Indexers{indexNode: nodeOfPod},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		})
	if err := h.nodes.SetTransform(trimNode); err != nil {
		return fmt.Errorf("set the transform of Nodes: %w", err)
	}
	if err := h.bound.SetTransform(trimPod); err != nil {
		return fmt.Errorf("set the transform of pods: %w", err)
	}
	_, err1 := h.nodes.AddEventHandler(objectcache.Handler(h.nodeChanged))
	_, err2 := h.bound.AddEventHandler(objectcache.Handler(h.podChanged))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("watch Nodes and pods: %w", err)
	}
	return nil
}

// nodeChanged wakes the VM whose readiness another client has changed, or whose agent or daemon has
// something to do. It ends the reports for a Node that was deleted.
func (h *Host) nodeChanged(before, after *corev1.Node) {
	if after == nil {
		h.mu.Lock()
		v := h.byName[before.Name]
		lost := v != nil && v.nodeUID == before.UID
		h.mu.Unlock()
		if lost {
			h.lostNode(v)
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.byName[after.Name]
	if v != nil && v.nodeUID == after.UID && v.health != guest.Frozen &&
		(ready(after) != readiness(v.health) || concernsAgent(after) || h.cfg.Daemons && concernsDaemon(after)) {
		h.wake(v)
	}
}

// podChanged makes a pod of a VM due, and one that is gone if a volume of the VM was in use by it.
func (h *Host) podChanged(before, after *corev1.Pod) {
	if after != nil {
		if h.reportsFor(after.Spec.NodeName) {
			h.pods.Wake(cache.MetaObjectToName(after).String())
		}
		return
	}
	h.mu.Lock()
	delete(h.ending, before.UID)
	v := h.byName[before.Spec.NodeName]
	h.mu.Unlock()
	if v != nil && v.volumes.uses(before) {
		h.pods.Wake(cache.MetaObjectToName(before).String())
	}
}

func (h *Host) reportsFor(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byName[node] != nil
}

// wakePods makes all pods of a Node due.
func (h *Host) wakePods(node string) {
	keys, err := h.bound.GetIndexer().IndexKeys(indexNode, node)
	if err != nil {
		h.cfg.Log.Error("Failed to find pods by their Node", "node", node, "err", err)
		return
	}
	for _, key := range keys {
		h.pods.Wake(key)
	}
}

func nodeOfPod(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("expected a pod, got %T", obj)
	}
	return []string{pod.Spec.NodeName}, nil
}

// trimNode keeps the fields of a Node that are read here.
func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	small := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady || c.Type == v1alpha1.NodeInPlaceUpdate {
			small.Status.Conditions = append(small.Status.Conditions, corev1.NodeCondition{
				Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	small.Annotations = daemonAnnotations(node.Annotations)
	if result, set := node.Annotations[cloudapi.AnnotationUpdateResult]; set {
		small.Annotations[cloudapi.AnnotationUpdateResult] = result
	}
	for _, t := range node.Spec.Taints {
		if isComponentsTaint(t) {
			small.Spec.Taints = []corev1.Taint{t}
		}
	}
	return small, nil
}

// trimPod keeps the fields of a pod that are read here.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	small := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork,
			Containers: trimContainers(pod.Spec.Containers), InitContainers: trimContainers(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if value, set := pod.Annotations[cloudapi.AnnotationPodTermination]; set {
		small.Annotations = map[string]string{cloudapi.AnnotationPodTermination: value}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			small.Spec.Volumes = append(small.Spec.Volumes, volume)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			small.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return small, nil
}

func trimContainers(all []corev1.Container) []corev1.Container {
	var small []corev1.Container
	for _, c := range all {
		small = append(small, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy})
	}
	return small
}
