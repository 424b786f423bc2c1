package rollout

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// UnderWay returns the revision of the rollout that a deployment is in; is is false if it is in none. owned are its sets.
func UnderWay(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) (rolledOut int64, is bool) {
	isComplete := reasonOf(d.Status) == v1alpha1.ReasonNewMachineSetAvailable
	if isComplete && d.Generation == d.Status.ObservedGeneration || d.DeletionTimestamp != nil {
		return 0, false
	}
	newSet := NewSet(d, owned)
	rolledOut = newRevision(World{Owned: owned}, newSet)
	resized := isComplete && newSet != nil && revision(newSet) == rolledOut
	return rolledOut, !resized
}

// Ends reports whether the write of a deployment ends a rollout.
func Ends(before, after *v1alpha1.MachineDeployment) bool {
	return reasonOf(before.Status) != v1alpha1.ReasonNewMachineSetAvailable && reasonOf(after.Status) == v1alpha1.ReasonNewMachineSetAvailable
}
