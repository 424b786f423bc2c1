package objects

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Nodes are Nodes of a target cluster.
type Nodes = Objects[*corev1.Node]

// View is what a process knows of the control cluster. Make one with NewView.
type View struct {
	Deployments *Objects[*v1alpha1.MachineDeployment]
	Sets        *Objects[*v1alpha1.MachineSet]
	Machines    *Objects[*v1alpha1.Machine]
	// Classes are those that somebody here may need, whole. One that is missing is read from the API server.
	Classes *Objects[*v1alpha1.MachineClass]
}

// NewView makes an empty one.
func NewView() *View {
	return &View{
		Deployments: New[*v1alpha1.MachineDeployment](),
		Sets:        New[*v1alpha1.MachineSet](),
		Machines:    New[*v1alpha1.Machine](),
		Classes:     New[*v1alpha1.MachineClass](),
	}
}
