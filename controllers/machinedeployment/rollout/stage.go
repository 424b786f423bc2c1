package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// UnderWay returns the revision of the rollout that a deployment is in; is is false if it is in
// none. owned are its sets.
func UnderWay(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) (rolledOut int64, is bool) {
	isComplete := reasonOf(d.Status) == v1alpha1.ReasonNewMachineSetAvailable
	if isComplete && d.Generation == d.Status.ObservedGeneration || d.DeletionTimestamp != nil {
		return 0, false
	}
	newSet := NewSet(d, owned)
	rolledOut = newRevision(owned, newSet)
	resized := isComplete && newSet != nil && machinefacts.Revision(newSet) == rolledOut &&
		!slices.ContainsFunc(owned, func(set *v1alpha1.MachineSet) bool {
			return set != newSet && (set.Spec.Replicas > 0 || set.Status.Replicas > 0) // the status is older than the new set
		})
	return rolledOut, !resized
}

// Waits returns what a rollout waits for when a pass rests with a verdict, one of few texts; "" if
// no rollout is under way.
func Waits(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet, v Verdict) string {
	if v.Deployment != nil {
		d = v.Deployment
	}
	if _, is := UnderWay(d, owned); !is {
		return ""
	}
	newSet := NewSet(d, owned)
	switch {
	case d.Spec.Paused:
		return "the end of a pause"
	case isInvalid(d.Status):
		return "a correction by a user"
	case stalledFor(d.Status) != "":
		return stalledFor(d.Status)
	case newSet == nil:
		return "old machines to be gone"
	case newSet.Status.AvailableReplicas < newSet.Spec.Replicas &&
		machinefacts.MachineSetCondition(&newSet.Status, v1alpha1.MachineSetCreationDelayed) != nil:
		return "the end of a delay of creations"
	case newSet.Status.AvailableReplicas < newSet.Spec.Replicas:
		return "new machines to be available"
	}
	if machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentDeletionsHeld) != nil {
		return "the end of a hold of deletions"
	}
	for _, set := range owned {
		if set.UID != newSet.UID && set.Status.Replicas > set.Spec.Replicas {
			return "old machines to be gone"
		}
	}
	return "the next step of a rollout"
}

// isInvalid reports whether the deployment is not reconciled until it is corrected. With a class of
// which no VM can be created it is.
func isInvalid(st v1alpha1.MachineDeploymentStatus) bool {
	valid := machinefacts.ConditionOfDeployment(&st, v1alpha1.MachineDeploymentValid)
	return valid.Status == corev1.ConditionFalse && valid.Reason != v1alpha1.ReasonInvalidClass &&
		valid.Reason != v1alpha1.ReasonTargetUnavailable
}

// stalledFor returns what a rollout waits for that makes no progress; "" if it does, or waits for
// machines to be available or gone.
func stalledFor(st v1alpha1.MachineDeploymentStatus) string {
	switch machinefacts.ConditionOfDeployment(&st, v1alpha1.MachineDeploymentRolloutStalled).Reason {
	case v1alpha1.ReasonMachineSetFrozen:
		return "the end of a freeze"
	case v1alpha1.ReasonFailedCreate, v1alpha1.ReasonFailedDelete:
		return "the next request to an API server after a failure"
	case v1alpha1.ReasonMachineCreateFailed, v1alpha1.ReasonInPlaceUpdateFailed, v1alpha1.ReasonInPlaceUpdateNotSupported:
		return "a correction by a user"
	case v1alpha1.ReasonMachinesPreserved:
		return "the end of a preservation"
	case v1alpha1.ReasonMachinesUpdating:
		return "the update in place"
	case v1alpha1.ReasonNodesNotSelected:
		return "Nodes to be selected by a user"
	}
	return ""
}

// Ends reports whether the write of a deployment ends a rollout.
func Ends(before, after *v1alpha1.MachineDeployment) bool {
	return reasonOf(before.Status) != v1alpha1.ReasonNewMachineSetAvailable && reasonOf(after.Status) == v1alpha1.ReasonNewMachineSetAvailable
}
