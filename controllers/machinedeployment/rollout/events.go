package rollout

import (
	"fmt"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// started returns the Event of a rollout that begins: with the creation of its new set where
// beginsWithSet, else with the write of the deployment's revision. Each rollout has another one.
// newSet is nil where old machines are deleted before it is created.
func started(revision string, newSet *v1alpha1.MachineSet) Event {
	message := "Started the rollout of revision " + revision
	if newSet != nil {
		message += ", machine set " + newSet.Name
	}
	return Event{Reason: v1alpha1.EventRolloutStarted, Message: message}
}

// beginsWithSet reports whether a rollout whose new set does not exist begins with the creation of
// that, which the API server may refuse, and not with the deletion of old machines.
func beginsWithSet(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) bool {
	return !isRecreating(d) || !slices.ContainsFunc(owned, func(s *v1alpha1.MachineSet) bool { return s.DeletionTimestamp == nil })
}

// rolloutEvents returns the Events of what a status reports of a rollout, and the previous one does
// not.
func (s report) rolloutEvents(st v1alpha1.MachineDeploymentStatus) (all []Event) {
	before, is := reasonOf(s.d.Status), reasonOf(st)
	wasStalled := machinefacts.MachineDeploymentCondition(&s.d.Status, v1alpha1.MachineDeploymentRolloutStalled)
	stalled := machinefacts.MachineDeploymentCondition(&st, v1alpha1.MachineDeploymentRolloutStalled)
	if before != is {
		switch v1alpha1.ReasonDeploymentPaused {
		case is:
			all = append(all, s.paused())
		case before:
			all = append(all, Event{v1alpha1.EventRolloutResumed, "The deployment is resumed"})
		}
		if is == v1alpha1.ReasonNewMachineSetAvailable {
			all = append(all, Event{v1alpha1.EventRolloutComplete, fmt.Sprintf("The rollout of revision %s is complete: machine set %s has %d machines",
				s.d.Annotations[v1alpha1.AnnotationRevision], s.newSet.set.Name, st.UpdatedReplicas)})
		}
	} else if is == v1alpha1.ReasonProgressDeadlineExceeded && s.d.Spec.Paused && wasStalled != nil { // which Progressing does not report
		all = append(all, s.paused())
	}
	if stalled != nil && (wasStalled == nil || wasStalled.Reason != stalled.Reason) {
		all = append(all, Event{v1alpha1.EventRolloutStalled, stalled.Reason + ": " + stalled.Message})
	}
	if s.d.Spec.Paused && s.d.Spec.RollbackTo != nil && s.d.Generation != s.d.Status.ObservedGeneration {
		all = append(all, Event{v1alpha1.EventRollbackWaits, "The rollback waits, because the deployment is paused; set spec.paused to false, or remove spec.rollbackTo"})
	}
	return all
}

func (s report) paused() Event {
	message := "The deployment is paused"
	if s.isUnderWay() {
		message += ", and machines of earlier templates are left"
	}
	return Event{v1alpha1.EventRolloutPaused, message}
}
