package stamp

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Roll describes the rollout of a pool's MachineDeployment.
type Roll struct {
	// Replaces reports whether machines of sets other than New are being replaced: the strategy is
	// RollingUpdate or Recreate, and the MachineDeployment is not paused.
	Replaces bool
	// New is the UID of the MachineSet of the current template; "" while it does not exist.
	New types.UID
}

// RollOf returns the Roll of a MachineDeployment. isNew reports whether a set has its template.
func RollOf(
	d *machinev1alpha1.MachineDeployment, sets []*machinev1alpha1.MachineSet,
	isNew func(d *machinev1alpha1.MachineDeployment, set *machinev1alpha1.MachineSet) bool,
) Roll {
	r := Roll{Replaces: d.Spec.Strategy.Type != machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType && !d.Spec.Paused}
	for _, set := range sets {
		if isNew(d, set) {
			r.New = set.UID
		}
	}
	return r
}

// Standing contains what the budget of a pool's Daemon rollout needs of the machines that the
// pool refers to: the fields of candidates.World. Machines that do not serve for a reason of the
// MachineDeployment count against the pool's maxUnavailable, too.
type Standing struct {
	// Nodes are those of the machines, in their order.
	Nodes []*corev1.Node
	// Absent is the number of machines that have no Node yet.
	Absent int
	// Leaving are the names of Nodes whose machines are being deleted, or have failed and are deleted
	// next.
	Leaving map[string]bool
	// Held are the names of Nodes whose machines will be replaced, or are being updated in place.
	Held map[string]bool
}

// Stand returns the Standing of machines. nodeOf returns the Node of a machine, which is bound to
// it; nil when there is none.
func Stand(machines []*machinev1alpha1.Machine, roll Roll, nodeOf func(m *machinev1alpha1.Machine) *corev1.Node) Standing {
	s := Standing{Leaving: map[string]bool{}, Held: map[string]bool{}}
	for _, m := range machines {
		isLeaving := m.DeletionTimestamp != nil || m.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
		node := nodeOf(m)
		if node == nil {
			if !isLeaving { // the machine that takes its place is counted
				s.Absent++
			}
			continue
		}
		s.Nodes = append(s.Nodes, node)
		if isLeaving {
			s.Leaving[node.Name] = true
		}
		set := metav1.GetControllerOfNoCopy(m)
		isOld := roll.Replaces && set != nil && set.UID != roll.New
		if isOld || machinefacts.IsInPlaceSelected(node) {
			s.Held[node.Name] = true
		}
	}
	return s
}
