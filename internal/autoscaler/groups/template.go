package groups

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// capacityGPU is the key of a class for the number of accelerators, and resourceGPU the resource
	// that it is for a scheduler.
	capacityGPU corev1.ResourceName = "gpu"
	resourceGPU corev1.ResourceName = "nvidia.com/gpu"
	// defaultPods is how many pods a kubelet allows that is not configured otherwise.
	defaultPods = 110
	// defaultArchitecture is that of a class without one, as for Gardener's fork.
	defaultArchitecture = "amd64"
)

// Template returns a Node like those that the group would have next: that of the class, with the
// labels, annotations and taints of the MachineDeployment. It has none of the labels that the fleet
// adds to Nodes. Its machine configuration decides how many pods it may have, where that is set.
// Errors: a RefusedError; Unimplemented while the class does not describe its Nodes.
func (n *Namespace) Template(id string) (*corev1.Node, error) {
	g, err := n.group(id)
	if err != nil {
		return nil, err
	}
	name := g.d.Spec.Template.Spec.Class.Name
	class := n.classes[name]
	if class == nil {
		return nil, refuse(Unimplemented, "expected a MachineClass %s/%s, got none; create it", n.name, name)
	}
	if class.NodeTemplate == nil {
		return nil, refuse(Unimplemented, "expected a nodeTemplate of MachineClass %s/%s, got none; add it to scale %s up from 0",
			n.name, name, id)
	}
	of, template := class.NodeTemplate, g.d.Spec.Template.Spec.NodeTemplateSpec
	hostname := "template-of-" + id
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: hostname, Labels: wellKnown(of), Annotations: usersOf(template.Annotations),
	}}
	maps.Copy(node.Labels, usersOf(template.Labels))
	node.Labels[corev1.LabelHostname] = hostname
	node.Spec.Taints = slices.DeleteFunc(slices.Clone(template.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == v1alpha1.TaintPreferNoSchedule || t.Key == v1alpha1.TaintPreserved
	})
	node.Status.Capacity = capacityOf(of)
	if most, isSet := n.pods[id]; isSet {
		node.Status.Capacity[corev1.ResourcePods] = *resource.NewQuantity(most, resource.DecimalSI)
	}
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node, nil
}

// wellKnown returns the labels that a kubelet and a cloud controller give to a Node.
func wellKnown(of *v1alpha1.NodeTemplate) map[string]string {
	labels := map[string]string{corev1.LabelOSStable: string(corev1.Linux), corev1.LabelArchStable: defaultArchitecture}
	if of.Architecture != nil && *of.Architecture != "" {
		labels[corev1.LabelArchStable] = *of.Architecture
	}
	for key, value := range map[string]string{
		corev1.LabelInstanceTypeStable: of.InstanceType, corev1.LabelTopologyRegion: of.Region, corev1.LabelTopologyZone: of.Zone,
	} {
		if value != "" {
			labels[key] = value
		}
	}
	return labels
}

// usersOf returns the labels or annotations of a template that the fleet applies to Nodes: those
// that are not its own.
func usersOf(all map[string]string) map[string]string {
	left := maps.Clone(all)
	maps.DeleteFunc(left, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.FleetDomain) })
	return left
}

// capacityOf returns the capacity of a Node of a class, with the resources' names of a scheduler.
func capacityOf(of *v1alpha1.NodeTemplate) corev1.ResourceList {
	capacity := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(defaultPods, resource.DecimalSI)}
	for _, list := range []corev1.ResourceList{of.Capacity, of.VirtualCapacity} {
		for name, quantity := range list {
			if name != capacityGPU {
				capacity[name] = quantity.DeepCopy()
			}
		}
	}
	if gpus, has := of.Capacity[capacityGPU]; has && !gpus.IsZero() {
		if _, named := capacity[resourceGPU]; !named {
			capacity[resourceGPU] = gpus.DeepCopy()
		}
	}
	return capacity
}

// Accelerators returns the kinds of accelerators of all groups.
func (n *Namespace) Accelerators() []string {
	kinds := map[string]bool{}
	for _, g := range n.groups {
		if kind := g.d.Spec.Template.Spec.NodeTemplateSpec.Labels[v1alpha1.LabelAccelerator]; kind != "" {
			kinds[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}
