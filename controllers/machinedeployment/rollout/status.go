package rollout

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// report is what a status and its Events show of a deployment.
type report struct{ *sets }

// finish ends the pass with the status.
func finish(s *sets) Verdict {
	d := s.d.DeepCopy()
	d.Status = status(s)
	writeNamed(d, report{s}.stillNamed())
	report{s}.noteFreeze(d)
	v := Verdict{Do: Rest, Deployment: d, Replacing: s.isUnderWay(), Wake: machinefacts.Sooner(s.nextChange(), report{s}.nextDeadline(d.Status))}
	if s.w.Done.CreateError != "" && !isKnownToFail(s.d) {
		v.Events = []Event{{Reason: v1alpha1.ReasonMachineSetCreateError, Message: s.w.Done.CreateError}}
	}
	v.Events = append(v.Events, report{s}.rolloutEvents(d.Status)...)
	return v
}

// isKnownToFail reports whether the status already has the failure to create the new set.
func isKnownToFail(d *v1alpha1.MachineDeployment) bool {
	c := machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentProgressing)
	return c.Status == corev1.ConditionFalse && c.Reason == v1alpha1.ReasonMachineSetCreateError
}

// status works out the deployment's status from its machines. Which of them have failed is taken
// from the sets.
func status(all *sets) v1alpha1.MachineDeploymentStatus {
	s := report{all}
	st := *s.d.Status.DeepCopy()
	st.ObservedGeneration = s.d.Generation
	st.Selector = metav1.FormatLabelSelector(s.d.Spec.Selector)
	st.Replicas, st.UpdatedReplicas, st.ReadyReplicas, st.AvailableReplicas, st.PreservedFailedReplicas = 0, 0, 0, 0, 0
	st.FailedMachines = nil
	wanted := int32(0)
	for _, t := range s.lastNew() {
		st.Replicas += t.seen.all
		st.ReadyReplicas += t.seen.ready
		st.AvailableReplicas += t.seen.available
		st.PreservedFailedReplicas += t.seen.preserved
		wanted += t.set.Spec.Replicas
		if t.set.Status.FailedMachines != nil {
			for _, failed := range *t.set.Status.FailedMachines {
				st.FailedMachines = append(st.FailedMachines, failed.DeepCopy())
			}
		}
	}
	if s.newSet != nil {
		st.UpdatedReplicas = s.newSet.seen.all
	}
	st.UnavailableReplicas = max(wanted-st.AvailableReplicas, 0)
	set := func(of v1alpha1.MachineDeploymentConditionType, is machinefacts.Condition) {
		machinefacts.SetConditionOfDeployment(&st, of, is, s.w.Now)
	}
	set(v1alpha1.MachineDeploymentValid, s.validity())
	set(v1alpha1.MachineDeploymentAvailable, s.availability(st))
	s.setProgressing(&st)
	set(v1alpha1.MachineDeploymentReplicaFailure, s.ofSets(v1alpha1.MachineSetReplicaFailure))
	set(v1alpha1.MachineDeploymentMachineCreateFailure, s.ofSets(v1alpha1.MachineSetMachineCreateFailure))
	set(v1alpha1.MachineDeploymentMachinesReleased, s.ofSets(v1alpha1.MachineSetMachinesReleased))
	set(v1alpha1.MachineDeploymentCreationDelayed, s.ofSets(v1alpha1.MachineSetCreationDelayed))
	set(v1alpha1.MachineDeploymentFrozen, s.frozenCondition())
	set(v1alpha1.MachineDeploymentRolloutStalled, s.stalled(st))
	return st
}

// validity returns the condition Valid.
func (s report) validity() machinefacts.Condition {
	if s.w.TargetProblem != "" {
		return machinefacts.False(v1alpha1.ReasonTargetUnavailable, "Machines wait for the target cluster: "+s.w.TargetProblem)
	}
	class := machinefacts.Condition{}
	if s.newSet != nil {
		if is := machinefacts.ConditionOfSet(&s.newSet.set.Status, v1alpha1.MachineSetValid); is.Reason == v1alpha1.ReasonInvalidClass {
			class = is
		}
	}
	return machinefacts.Validity(class, validation.RemarksOnMachineDeployment(&s.d.Spec))
}

func (s report) availability(st v1alpha1.MachineDeploymentStatus) machinefacts.Condition {
	if st.AvailableReplicas >= s.least(st.PreservedFailedReplicas) {
		return machinefacts.True(v1alpha1.ReasonMinimumReplicasAvailable, "Deployment has minimum availability.")
	}
	return machinefacts.False(v1alpha1.ReasonMinimumReplicasUnavailable, "Deployment does not have minimum availability.")
}

// ofSets returns the condition of the first set that has one of the type, the new one first.
func (s report) ofSets(t v1alpha1.MachineSetConditionType) machinefacts.Condition {
	for _, set := range s.all() {
		if is := machinefacts.ConditionOfSet(&set.set.Status, t); is != (machinefacts.Condition{}) {
			return is
		}
	}
	return machinefacts.Condition{}
}
