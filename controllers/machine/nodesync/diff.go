package nodesync

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Patch is one strategic merge patch of a Node. It has only differences, so that values of other
// writers are kept.
type Patch struct {
	// Body is the patch, without UID and resourceVersion.
	Body map[string]any `json:"body"`
	// Status reports whether it is for the subresource status.
	Status bool `json:"status,omitempty"`
	// AsRead reports whether the patch is valid only for the Node as it was read. A late one could add
	// values that are no longer desired or recorded. A Node that is not claimed has no other writer in
	// the fleet, and changes often because it has just joined: for it a patch is valid for any
	// version, unless it replaces a list.
	AsRead bool `json:"asRead,omitempty"`
}

// WithAnnotation returns the patch with one more annotation.
func (p *Patch) WithAnnotation(key, value string) *Patch {
	with, metadata, annotations := *p, map[string]any{}, map[string]any{}
	if is, ok := p.Body["metadata"].(map[string]any); ok {
		metadata = maps.Clone(is)
	}
	if is, ok := metadata["annotations"].(map[string]any); ok {
		annotations = maps.Clone(is)
	}
	annotations[key] = value
	metadata["annotations"] = annotations
	with.Body = maps.Clone(p.Body)
	with.Body["metadata"] = metadata
	return &with
}

// Diff returns the patches that lead from one version of a Node to another: of metadata and spec,
// and of the status. Nil means no difference. It compares labels, annotations, finalizers, taints,
// the cordon, capacity and conditions.
func Diff(before, after *corev1.Node) (main, status *Patch) {
	isClaimed := slices.Contains(before.Finalizers, v1alpha1.NodeFinalizerName)
	metadata := map[string]any{}
	put(metadata, "labels", diffMap(before.Labels, after.Labels))
	put(metadata, "annotations", diffMap(before.Annotations, after.Annotations))
	if added := without(after.Finalizers, before.Finalizers); len(added) > 0 {
		metadata["finalizers"] = added
	}
	if removed := without(before.Finalizers, after.Finalizers); len(removed) > 0 {
		metadata["$deleteFromPrimitiveList/finalizers"] = removed
	}
	body := map[string]any{}
	put(body, "metadata", metadata)
	spec, taints := map[string]any{}, !apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
	if taints {
		spec["taints"] = slices.Concat([]corev1.Taint{}, after.Spec.Taints)
	}
	if before.Spec.Unschedulable != after.Spec.Unschedulable {
		spec["unschedulable"] = after.Spec.Unschedulable
	}
	put(body, "spec", spec)
	if len(body) > 0 {
		main = &Patch{Body: body, AsRead: isClaimed || taints}
	}
	if body := diffStatus(&before.Status, &after.Status); len(body) > 0 {
		status = &Patch{Body: map[string]any{"status": body}, Status: true, AsRead: true}
	}
	return main, status
}

func diffStatus(before, after *corev1.NodeStatus) map[string]any {
	body, capacity := map[string]any{}, map[string]any{}
	for name := range before.Capacity {
		if _, still := after.Capacity[name]; !still {
			capacity[string(name)] = nil
		}
	}
	for name, quantity := range after.Capacity {
		if was, there := before.Capacity[name]; !there || was.Cmp(quantity) != 0 {
			capacity[string(name)] = quantity
		}
	}
	put(body, "capacity", capacity)
	var conditions []any // merged by type
	for _, c := range after.Conditions {
		if !slices.ContainsFunc(before.Conditions, func(was corev1.NodeCondition) bool { return apiequality.Semantic.DeepEqual(was, c) }) {
			conditions = append(conditions, c)
		}
	}
	for _, c := range before.Conditions {
		if !slices.ContainsFunc(after.Conditions, func(is corev1.NodeCondition) bool { return is.Type == c.Type }) {
			conditions = append(conditions, map[string]any{"$patch": "delete", "type": c.Type})
		}
	}
	if len(conditions) > 0 {
		body["conditions"] = conditions
	}
	return body
}

// diffMap returns the merge patch between two maps.
func diffMap(before, after map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range before {
		if _, still := after[key]; !still {
			patch[key] = nil
		}
	}
	for key, value := range after {
		if was, there := before[key]; !there || was != value {
			patch[key] = value
		}
	}
	return patch
}

func put(into map[string]any, key string, part map[string]any) {
	if len(part) > 0 {
		into[key] = part
	}
}

// without returns the items that others does not contain.
func without(items, others []string) []string {
	return slices.DeleteFunc(slices.Clone(items), func(item string) bool { return slices.Contains(others, item) })
}
