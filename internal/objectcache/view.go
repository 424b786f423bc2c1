package objectcache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// Nodes are Nodes of a target cluster.
type Nodes = Objects[*corev1.Node]

// View is the cache of the control cluster in a process. Make one with NewView.
type View struct {
	Deployments *Objects[*v1alpha1.MachineDeployment]
	Sets        *Objects[*v1alpha1.MachineSet]
	Machines    *Objects[*v1alpha1.Machine]
	// Classes are the complete classes that this process may need. One that is missing is read from the API server.
	Classes *Objects[*v1alpha1.MachineClass]
	// Undecodable has the objects that exist and cannot be decoded. None of them is in the other caches.
	Undecodable Undecodable
}

// Undecodable are objects that exist and cannot be decoded, by kind, with their metadata.
type Undecodable struct {
	Deployments, Sets, Machines, Classes *Objects[*decode.Failure]
}

// NewView makes an empty one.
func NewView() *View {
	return &View{
		Deployments: New[*v1alpha1.MachineDeployment](),
		Sets:        New[*v1alpha1.MachineSet](),
		Machines:    New[*v1alpha1.Machine](),
		Classes:     New[*v1alpha1.MachineClass](),
		Undecodable: Undecodable{
			Deployments: New[*decode.Failure](), Sets: New[*decode.Failure](),
			Machines: New[*decode.Failure](), Classes: New[*decode.Failure](),
		},
	}
}

// UndecodableMachines returns the machines of a controller that cannot be decoded, with their metadata only.
func (v *View) UndecodableMachines(controller metav1.Object) (machines []*v1alpha1.Machine) {
	for _, f := range v.Undecodable.Machines.Under(controller) {
		machines = append(machines, &v1alpha1.Machine{ObjectMeta: f.ObjectMeta})
	}
	return machines
}
