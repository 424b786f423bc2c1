package disruption

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// waiting returns how many machines are not deleted only because deletions are held: all of a root
// or set that is being deleted, those that are more than the replicas of their set, and those that
// should be replaced for their health. Machines that never ran, and those that are being deleted,
// do not wait.
func waiting(w World) (n int) {
	if !w.Held {
		return 0
	}
	replaced := map[types.UID]bool{}
	for _, c := range candidates(w, nil) {
		replaced[c.Machine.UID] = !c.neverUp
	}
	left := map[types.UID]bool{} // of sets that are being deleted
	machines := slices.Clone(w.Undecodable)
	for _, m := range w.Undecodable {
		left[m.UID] = m.DeletionTimestamp == nil
	}
	for _, member := range w.Machines {
		left[member.Machine.UID] = member.Machine.DeletionTimestamp == nil && !machinefacts.NeverRan(member.Machine)
		machines = append(machines, member.Machine)
	}
	for _, set := range w.Sets {
		if w.Deleted {
			break // with all of its machines
		}
		n += waitingOf(set, machines, left, replaced)
		for _, m := range machines {
			if metav1.IsControlledBy(m, set) {
				delete(left, m.UID)
			}
		}
	}
	for _, waits := range left {
		if waits {
			n++
		}
	}
	return n
}

// waitingOf returns how many machines of a set wait: of those that are too many, the ones that
// never ran are deleted. ran has those that have run and are not being deleted.
func waitingOf(set *v1alpha1.MachineSet, machines []*v1alpha1.Machine, ran, replaced map[types.UID]bool) int {
	running, unhealthy := 0, 0
	for _, m := range machines {
		transferred := m.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultSuccessful
		if !metav1.IsControlledBy(m, set) || transferred {
			continue
		}
		if ran[m.UID] {
			running++
		}
		if replaced[m.UID] {
			unhealthy++
		}
	}
	return max(running-int(set.Spec.Replicas), unhealthy, 0)
}
