package rollout

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// finish ends the pass with the status.
func finish(s *sets) Verdict {
	d := s.d.DeepCopy()
	d.Status = status(s)
	writeNamed(d, s.stillNamed())
	s.noteFreeze(d)
	v := Verdict{Do: Rest, Deployment: d, Replacing: s.isUnderWay(), Wake: machinefacts.Sooner(nextChange(s.w), s.nextDeadline(d.Status))}
	if s.w.Done.CreateError != "" && !isKnownToFail(s.d) {
		v.Events = []Event{{Reason: v1alpha1.ReasonMachineSetCreateError, Message: s.w.Done.CreateError}}
	}
	v.Events = append(v.Events, s.rolloutEvents(d.Status)...)
	return v
}

// isKnownToFail reports whether the status already has the failure to create the new set.
func isKnownToFail(d *v1alpha1.MachineDeployment) bool {
	c := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentProgressing)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == v1alpha1.ReasonMachineSetCreateError
}

// status works out the deployment's status from its machines. Which of them have failed is taken from the sets.
func status(s *sets) v1alpha1.MachineDeploymentStatus {
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
	if s.fresh != nil {
		st.UpdatedReplicas = s.fresh.seen.all
	}
	st.UnavailableReplicas = max(wanted-st.AvailableReplicas, 0)
	s.setValid(&st)
	machinefacts.PutMachineDeploymentCondition(&st, s.availability(st), s.w.Now)
	s.setProgressing(&st)
	s.copyFailure(&st, v1alpha1.MachineSetReplicaFailure, v1alpha1.MachineDeploymentReplicaFailure)
	s.copyFailure(&st, v1alpha1.MachineSetMachineCreateFailure, v1alpha1.MachineDeploymentMachineCreateFailure)
	s.copyFailure(&st, v1alpha1.MachineSetMachinesReleased, v1alpha1.MachineDeploymentMachinesReleased)
	s.copyFailure(&st, v1alpha1.MachineSetCreationDelayed, v1alpha1.MachineDeploymentCreationDelayed)
	s.setFrozen(&st)
	s.setStalled(&st)
	return st
}

// setValid records what keeps new machines from getting VMs, or else what works and hardly as its author expects.
func (s *sets) setValid(st *v1alpha1.MachineDeploymentStatus) {
	if s.fresh != nil {
		is := machinefacts.MachineSetCondition(&s.fresh.set.Status, v1alpha1.MachineSetValid)
		if is != nil && is.Reason == v1alpha1.ReasonInvalidClass {
			machinefacts.PutMachineDeploymentCondition(st, v1alpha1.MachineDeploymentCondition{
				Type: v1alpha1.MachineDeploymentValid, Status: is.Status, Reason: is.Reason, Message: is.Message,
			}, s.w.Now)
			return
		}
	}
	remarks := validation.RemarksOnMachineDeployment(&s.d.Spec)
	if len(remarks) == 0 {
		machinefacts.DropMachineDeploymentCondition(st, v1alpha1.MachineDeploymentValid)
		return
	}
	machinefacts.PutMachineDeploymentCondition(st, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentValid, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonRemarks,
		Message: bounded.Text(strings.Join(remarks, "; "), bounded.Message),
	}, s.w.Now)
}

func (s *sets) availability(st v1alpha1.MachineDeploymentStatus) v1alpha1.MachineDeploymentCondition {
	if st.AvailableReplicas >= s.least(st.PreservedFailedReplicas) {
		return v1alpha1.MachineDeploymentCondition{
			Type: v1alpha1.MachineDeploymentAvailable, Status: corev1.ConditionTrue,
			Reason: v1alpha1.ReasonMinimumReplicasAvailable, Message: "Deployment has minimum availability.",
		}
	}
	return v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentAvailable, Status: corev1.ConditionFalse,
		Reason: v1alpha1.ReasonMinimumReplicasUnavailable, Message: "Deployment does not have minimum availability.",
	}
}

// copyFailure copies the condition of the first set that has it, the new one first.
func (s *sets) copyFailure(st *v1alpha1.MachineDeploymentStatus, from v1alpha1.MachineSetConditionType, to v1alpha1.MachineDeploymentConditionType) {
	for _, t := range s.all() {
		for _, c := range t.set.Status.Conditions {
			if c.Type == from {
				machinefacts.PutMachineDeploymentCondition(st, v1alpha1.MachineDeploymentCondition{Type: to, Status: c.Status, Reason: c.Reason, Message: c.Message}, s.w.Now)
				return
			}
		}
	}
	machinefacts.DropMachineDeploymentCondition(st, to)
}
