package scale

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// status computes the set's status from its machines.
func status(w World) v1alpha1.MachineSetStatus {
	s := *w.Set.Status.DeepCopy()
	s.ObservedGeneration = w.Set.Generation
	s.Selector = metav1.FormatLabelSelector(w.Set.Spec.Selector)
	s.AutoPreserveFailedMachineCount = 0
	s.Replicas, s.FullyLabeledReplicas, s.AvailableReplicas, s.ReadyReplicas, s.PreservedFailedReplicas = 0, 0, 0, 0, 0
	template := labels.SelectorFromSet(w.Set.Spec.Template.Labels)
	var failed []v1alpha1.MachineSummary
	var firstProblem *v1alpha1.Machine
	for _, m := range w.Owned {
		s.Replicas++
		if isAutoPreserved(m) {
			s.AutoPreserveFailedMachineCount++
		}
		if template.Matches(labels.Set(m.Labels)) {
			s.FullyLabeledReplicas++
		}
		if m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			s.ReadyReplicas++
		}
		if available, _ := availability(w, m); available {
			s.AvailableReplicas++
		}
		preserved := m.Status.CurrentStatus.PreserveExpiryTime != nil
		if preserved && m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
			s.PreservedFailedReplicas++
		}
		if m.Status.LastOperation.State == v1alpha1.MachineStateFailed && !preserved {
			failed = append(failed, v1alpha1.MachineSummary{
				Name: m.Name, ProviderID: m.Spec.ProviderID, LastOperation: m.Status.LastOperation, OwnerRef: w.Set.Name,
			})
			if m.Status.LastOperation.Type == v1alpha1.MachineOperationCreate && (firstProblem == nil || m.Name < firstProblem.Name) {
				firstProblem = m
			}
		}
	}
	slices.SortFunc(failed, func(a, b v1alpha1.MachineSummary) int { return strings.Compare(a.Name, b.Name) })
	s.FailedMachines = nil
	if len(failed) > 0 {
		s.FailedMachines = &failed
	}
	dropCondition(&s, v1alpha1.MachineSetValid)
	setFrozen(w, &s)
	setReplicaFailure(w, &s)
	setCreateFailure(w, &s, firstProblem)
	return s
}

// setReplicaFailure records what the API server rejects. Errors of a cloud are not part of it: clients such as Gardener's health
// check interpret ReplicaFailure as a defect of the MachineSet.
func setReplicaFailure(w World, s *v1alpha1.MachineSetStatus) {
	condition := v1alpha1.MachineSetCondition{Type: v1alpha1.MachineSetReplicaFailure, Status: corev1.ConditionTrue}
	switch {
	case w.Done.CreateError != "":
		condition.Reason, condition.Message = v1alpha1.ReasonFailedCreate, w.Done.CreateError
	case w.Done.DeleteError != "":
		condition.Reason, condition.Message = v1alpha1.ReasonFailedDelete, w.Done.DeleteError
	default:
		dropCondition(s, v1alpha1.MachineSetReplicaFailure)
		return
	}
	setCondition(w, s, condition)
}

// setCreateFailure records the error of the first machine, by name, whose VM could not be created.
func setCreateFailure(w World, s *v1alpha1.MachineSetStatus, failed *v1alpha1.Machine) {
	if failed == nil {
		dropCondition(s, v1alpha1.MachineSetMachineCreateFailure)
		return
	}
	op := failed.Status.LastOperation
	setCondition(w, s, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetMachineCreateFailure, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonMachineCreateFailed,
		Message: fmt.Sprintf("Machine %s: %s: %s", failed.Name, op.ErrorCode, op.Description),
	})
}

// News returns the reason and the message of an Event for the status of the pass: the set is invalid, or the API server has
// rejected a request. The reason is "" if there is neither, or the status has it already.
func News(w World, written v1alpha1.MachineSetStatus) (reason, message string) {
	if is := condition(written, v1alpha1.MachineSetValid); is != nil {
		if before := condition(w.Set.Status, v1alpha1.MachineSetValid); before != nil && *before == *is {
			return "", ""
		}
		return validation.EventReason(is.Reason), is.Message
	}
	switch {
	case w.Done.CreateError != "":
		reason, message = v1alpha1.ReasonFailedCreate, w.Done.CreateError
	case w.Done.DeleteError != "":
		reason, message = v1alpha1.ReasonFailedDelete, w.Done.DeleteError
	}
	before := condition(w.Set.Status, v1alpha1.MachineSetReplicaFailure)
	if before != nil && before.Status == corev1.ConditionTrue && before.Reason == reason {
		return "", ""
	}
	return reason, message
}

// condition returns the condition of a type; nil if there is none.
func condition(s v1alpha1.MachineSetStatus, t v1alpha1.MachineSetConditionType) *v1alpha1.MachineSetCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition sets a condition in the status; the time of transition is kept while the condition's status is unchanged.
func setCondition(w World, s *v1alpha1.MachineSetStatus, c v1alpha1.MachineSetCondition) {
	c.LastTransitionTime, c.Message = metav1.NewTime(w.Now), bounded.Text(c.Message, bounded.Message)
	for i, old := range s.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

func dropCondition(s *v1alpha1.MachineSetStatus, t v1alpha1.MachineSetConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c v1alpha1.MachineSetCondition) bool { return c.Type == t })
	if len(s.Conditions) == 0 {
		s.Conditions = nil
	}
}
