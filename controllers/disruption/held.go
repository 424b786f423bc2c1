package disruption

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// waiting returns how many machines are not deleted only because deletions are held: all of a root or set that is being deleted, those
// that are more than the replicas of their set, and those that should be replaced for their health. Machines that never ran, and
// those that are being deleted, do not wait.
func waiting(w World) (n int) {
	if !w.Held {
		return 0
	}
	replaced := map[types.UID]bool{}
	for _, c := range candidates(w, nil) {
		replaced[c.Machine.UID] = !c.neverUp
	}
	left := map[types.UID]bool{} // of sets that are being deleted
	for _, member := range w.Machines {
		left[member.Machine.UID] = member.Machine.DeletionTimestamp == nil && !machinefacts.NeverRan(member.Machine)
	}
	for _, m := range w.Undecodable {
		left[m.UID] = m.DeletionTimestamp == nil
	}
	for _, set := range w.Sets {
		standing, ran, unhealthy := 0, 0, 0
		count := func(m *v1alpha1.Machine) {
			if !metav1.IsControlledBy(m, set) {
				return
			}
			if m.DeletionTimestamp == nil && m.Labels[v1alpha1.LabelUpdateResult] != v1alpha1.UpdateResultSuccessful { // else it was just transferred
				standing++
				if left[m.UID] {
					ran++
				}
				if replaced[m.UID] {
					unhealthy++
				}
			}
			if !w.Deleted {
				delete(left, m.UID)
			}
		}
		for _, member := range w.Machines {
			count(member.Machine)
		}
		for _, m := range w.Undecodable {
			count(m)
		}
		if !w.Deleted { // of those that are too many, the ones that never ran are deleted
			n += max(standing-int(set.Spec.Replicas)-(standing-ran), unhealthy, 0)
		}
	}
	for _, waits := range left {
		if waits {
			n++
		}
	}
	return n
}
