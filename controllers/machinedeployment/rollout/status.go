package rollout

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// finish ends the pass with the status.
func finish(w World, newSet *v1alpha1.MachineSet) Verdict {
	d := w.Deployment.DeepCopy()
	d.Status = status(w, newSet)
	v := Verdict{Do: Rest, Deployment: d}
	if w.Done.CreateError != "" && !isKnownToFail(w.Deployment) {
		v.Events = []Event{{Reason: v1alpha1.ReasonMachineSetCreateError, Message: w.Done.CreateError}}
	}
	return v
}

// isKnownToFail says that the status tells already that the new set cannot be made.
func isKnownToFail(d *v1alpha1.MachineDeployment) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
		return c.Type == v1alpha1.MachineDeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == v1alpha1.ReasonMachineSetCreateError
	})
}

// status works out the deployment's status from its sets.
func status(w World, newSet *v1alpha1.MachineSet) v1alpha1.MachineDeploymentStatus {
	s := *w.Deployment.Status.DeepCopy()
	s.ObservedGeneration = w.Deployment.Generation
	s.Selector = metav1.FormatLabelSelector(w.Deployment.Spec.Selector)
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.PreservedFailedReplicas = 0, 0, 0, 0, 0
	s.FailedMachines = nil
	wanted := int32(0)
	for _, set := range oldestFirst(w.Owned) {
		s.Replicas += set.Status.Replicas
		s.ReadyReplicas += set.Status.ReadyReplicas
		s.AvailableReplicas += set.Status.AvailableReplicas
		s.PreservedFailedReplicas += set.Status.PreservedFailedReplicas
		wanted += set.Spec.Replicas
		if set.Status.FailedMachines != nil {
			for _, failed := range *set.Status.FailedMachines {
				s.FailedMachines = append(s.FailedMachines, failed.DeepCopy())
			}
		}
	}
	if newSet != nil {
		s.UpdatedReplicas = newSet.Status.Replicas
	}
	s.UnavailableReplicas = max(wanted-s.AvailableReplicas, 0)
	dropCondition(&s, v1alpha1.MachineDeploymentValid)
	setCondition(w, &s, available(w, s))
	if c := progressing(w, s, newSet); c != nil {
		setCondition(w, &s, *c)
	}
	setReplicaFailure(w, &s, newSet)
	return s
}

func available(w World, s v1alpha1.MachineDeploymentStatus) v1alpha1.MachineDeploymentCondition {
	replicas := w.Deployment.Spec.Replicas
	minimum := max(replicas-int32(maxUnavailable(w.Deployment))-s.PreservedFailedReplicas, 0)
	if s.AvailableReplicas >= minimum {
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

// maxUnavailable is how many of the replicas may be missing in a rolling update: rounded down, none without a strategy,
// and 1 where a surge of 0 would leave no way to move.
func maxUnavailable(d *v1alpha1.MachineDeployment) int {
	r := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != v1alpha1.RollingUpdateMachineDeploymentStrategyType || r == nil || d.Spec.Replicas == 0 {
		return 0
	}
	unavailable := intstr.FromInt32(0)
	if r.MaxUnavailable != nil {
		unavailable = *r.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&unavailable, int(d.Spec.Replicas), false)
	if err != nil {
		return 0 // validation has refused it
	}
	if n = max(n, 0); n == 0 && maxSurge(d) == 0 {
		n = 1
	}
	return min(n, int(d.Spec.Replicas))
}

// progressing says how far the deployment is on its way to the new set. Nil leaves the condition as it is: a deployment
// that was complete and is only resized stays so, which is what the cluster-autoscaler needs to scale it down.
func progressing(w World, s v1alpha1.MachineDeploymentStatus, newSet *v1alpha1.MachineSet) *v1alpha1.MachineDeploymentCondition {
	c := &v1alpha1.MachineDeploymentCondition{Type: v1alpha1.MachineDeploymentProgressing, Status: corev1.ConditionTrue}
	d := w.Deployment
	switch old := olderActive(w, newSet); {
	case newSet == nil && w.Done.CreateError != "":
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, v1alpha1.ReasonMachineSetCreateError, w.Done.CreateError
	case d.Spec.Paused:
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, v1alpha1.ReasonDeploymentPaused, "Deployment is paused"
	case newSet != nil && old != nil:
		c.Status, c.Reason = corev1.ConditionFalse, v1alpha1.ReasonRolloutNotSupported
		c.Message = fmt.Sprintf("The template has changed and machine set %s was made for it, with %d replicas. Rollouts are not built yet: machine set %s keeps its machines and is the one that is scaled. Delete the MachineDeployment and make it anew to have new machines",
			newSet.Name, newSet.Spec.Replicas, old.Name)
	case newSet != nil && isComplete(d, s):
		c.Reason, c.Message = v1alpha1.ReasonNewMachineSetAvailable, fmt.Sprintf("MachineSet %q has successfully progressed.", newSet.Name)
	case newSet == nil, reasonOf(s) == v1alpha1.ReasonNewMachineSetAvailable:
		return nil
	default:
		c.Reason, c.Message = v1alpha1.ReasonNewMachineSetCreated, fmt.Sprintf("Created new machine set %q", newSet.Name)
	}
	return c
}

// olderActive returns the newest set beside the new one that has machines.
func olderActive(w World, newSet *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	for _, set := range slices.Backward(oldestFirst(w.Owned)) {
		if (newSet == nil || set.UID != newSet.UID) && set.DeletionTimestamp == nil && set.Spec.Replicas > 0 {
			return set
		}
	}
	return nil
}

func isComplete(d *v1alpha1.MachineDeployment, s v1alpha1.MachineDeploymentStatus) bool {
	return s.UpdatedReplicas == d.Spec.Replicas && s.Replicas == d.Spec.Replicas && s.AvailableReplicas == d.Spec.Replicas
}

func reasonOf(s v1alpha1.MachineDeploymentStatus) string {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.MachineDeploymentProgressing {
			return c.Reason
		}
	}
	return ""
}

// setReplicaFailure copies the condition of the first set that has it, the new one first.
func setReplicaFailure(w World, s *v1alpha1.MachineDeploymentStatus, newSet *v1alpha1.MachineSet) {
	sets := oldestFirst(w.Owned)
	if newSet != nil {
		sets = append([]*v1alpha1.MachineSet{newSet}, sets...)
	}
	for _, set := range sets {
		for _, c := range set.Status.Conditions {
			if c.Type == v1alpha1.MachineSetReplicaFailure {
				setCondition(w, s, v1alpha1.MachineDeploymentCondition{
					Type: v1alpha1.MachineDeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				})
				return
			}
		}
	}
	dropCondition(s, v1alpha1.MachineDeploymentReplicaFailure)
}

// setCondition puts a condition into the status, and says whether it is another than before. One with the same status
// and reason is kept with its times; its message may change.
func setCondition(w World, s *v1alpha1.MachineDeploymentStatus, c v1alpha1.MachineDeploymentCondition) (changed bool) {
	c.LastUpdateTime, c.LastTransitionTime = metav1.NewTime(w.Now), metav1.NewTime(w.Now)
	for i, old := range s.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		same := old.Status == c.Status && old.Reason == c.Reason
		if same {
			c.LastUpdateTime = old.LastUpdateTime
		}
		s.Conditions[i] = c
		return !same
	}
	s.Conditions = append(s.Conditions, c)
	return true
}

func dropCondition(s *v1alpha1.MachineDeploymentStatus, t v1alpha1.MachineDeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == t })
	if len(s.Conditions) == 0 {
		s.Conditions = nil
	}
}
