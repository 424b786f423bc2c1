package rollout

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// UnderWay returns the revision of the rollout that a deployment is in; is is false if it is in none. owned are its sets.
func UnderWay(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) (rolledOut int64, is bool) {
	isComplete := reasonOf(d.Status) == v1alpha1.ReasonNewMachineSetAvailable
	if isComplete && d.Generation == d.Status.ObservedGeneration || d.DeletionTimestamp != nil {
		return 0, false
	}
	newSet := NewSet(d, owned)
	rolledOut = newRevision(World{Owned: owned}, newSet)
	resized := isComplete && newSet != nil && machinefacts.Revision(newSet) == rolledOut
	return rolledOut, !resized
}

// Waits returns what a rollout waits for when a pass rests with a verdict, one of few texts; "" if no rollout is under way.
func Waits(w World, v Verdict) string {
	d := w.Deployment
	if v.Deployment != nil {
		d = v.Deployment
	}
	if _, is := UnderWay(d, w.Owned); !is {
		return ""
	}
	newSet := NewSet(w.Deployment, w.Owned)
	switch {
	case w.Deployment.Spec.Paused:
		return "the end of a pause"
	case newSet == nil:
		return "old machines to be gone"
	case newSet.Status.AvailableReplicas < newSet.Spec.Replicas:
		return "new machines to be available"
	}
	for _, set := range w.Owned {
		if set.UID != newSet.UID && set.Status.Replicas > set.Spec.Replicas {
			return "old machines to be gone"
		}
	}
	return "the next step of a rollout"
}

// Ends reports whether the write of a deployment ends a rollout.
func Ends(before, after *v1alpha1.MachineDeployment) bool {
	return reasonOf(before.Status) != v1alpha1.ReasonNewMachineSetAvailable && reasonOf(after.Status) == v1alpha1.ReasonNewMachineSetAvailable
}
