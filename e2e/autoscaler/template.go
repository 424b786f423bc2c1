package main

import (
	"fmt"
	"maps"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// labelPool is the label of Nodes, and of the nodeTemplate, that names the pool of workers.
const labelPool = "worker.gardener.cloud/pool"

const (
	// kindMachineClass is the only kind of classes that the cluster-autoscaler supports.
	kindMachineClass = "MachineClass"
	// architecture is that of Nodes whose class does not have one.
	architecture = "amd64"
)

// template describes a new Node of a node group.
type template struct {
	// Capacity is that of the class, with the virtual one over it, or that of a Node that the pool has
	// already.
	Capacity corev1.ResourceList `json:"capacity"`
	// Labels are those of the nodeTemplate, with the class's architecture over them.
	Labels       map[string]string `json:"labels,omitempty"`
	Taints       []corev1.Taint    `json:"taints,omitempty"`
	InstanceType string            `json:"instanceType"`
	Region       string            `json:"region"`
	Zone         string            `json:"zone"`
	// From is the Node that the capacity is taken from, "" when it is the class.
	From string `json:"from,omitempty"`
}

// classOf is the name of the class of a MachineDeployment.
func classOf(d *v1alpha1.MachineDeployment) (string, error) {
	class := d.Spec.Template.Spec.Class
	if class.Kind != kindMachineClass {
		return "", fmt.Errorf("class %s is of kind %q: %w", class.Name, class.Kind, errKind)
	}
	return class.Name, nil
}

// templateOf returns the template of a Node of the MachineDeployment: from an existing one of the
// pool, of the same instance type, or from its class.
func templateOf(d *v1alpha1.MachineDeployment, class *v1alpha1.MachineClass, nodes []corev1.Node) (*template, error) {
	of := class.NodeTemplate
	if of == nil {
		return nil, fmt.Errorf("class %s has no nodeTemplate: %w", class.Name, errTemplate)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "gpu"} {
		if _, has := of.Capacity[name]; !has {
			return nil, fmt.Errorf("class %s has no capacity of %s: %w", class.Name, name, errTemplate)
		}
	}
	if of.InstanceType == "" || of.Region == "" || of.Zone == "" {
		return nil, fmt.Errorf("class %s has instance type %q, region %q, zone %q: %w",
			class.Name, of.InstanceType, of.Region, of.Zone, errTemplate)
	}
	node := d.Spec.Template.Spec.NodeTemplateSpec
	t := &template{
		Capacity: maps.Clone(of.Capacity), Labels: map[string]string{}, Taints: node.Spec.Taints,
		InstanceType: of.InstanceType, Region: of.Region, Zone: of.Zone,
	}
	maps.Copy(t.Capacity, of.VirtualCapacity)
	maps.Copy(t.Labels, node.Labels)
	t.Labels[corev1.LabelArchStable] = architecture
	if of.Architecture != nil {
		t.Labels[corev1.LabelArchStable] = *of.Architecture
	}
	for _, n := range nodes {
		if n.Labels[labelPool] == node.Labels[labelPool] && n.Labels[corev1.LabelInstanceTypeStable] == of.InstanceType &&
			n.Status.Capacity != nil {
			t.Capacity, t.From = n.Status.Capacity, n.Name
			break
		}
	}
	return t, nil
}
