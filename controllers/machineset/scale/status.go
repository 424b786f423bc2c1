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
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// status computes the set's status from its machines.
func status(w World) v1alpha1.MachineSetStatus {
	s := *w.Set.Status.DeepCopy()
	s.ObservedGeneration = w.Set.Generation
	s.Selector = metav1.FormatLabelSelector(w.Set.Spec.Selector)
	s.AutoPreserveFailedMachineCount = 0
	s.Replicas, s.FullyLabeledReplicas, s.AvailableReplicas, s.ReadyReplicas, s.PreservedFailedReplicas = 0, 0, 0, 0, 0
	template := labels.SelectorFromSet(machinefacts.TemplateLabels(&w.Set.Spec.Template))
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
		if machinefacts.IsReady(m) {
			s.ReadyReplicas++
		}
		if available, _ := availability(w, m); available {
			s.AvailableReplicas++
		}
		if machinefacts.IsPreservedFailed(m, w.Now) {
			s.PreservedFailedReplicas++
		}
		if m.Status.LastOperation.State == v1alpha1.MachineStateFailed && !machinefacts.IsPreserved(m, w.Now) {
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
	setValid(w, &s)
	setFrozen(w, &s)
	setHeld(w, &s)
	setReleased(w, &s)
	setLosses(w, &s)
	setReplicaFailure(w, &s)
	setCreateFailure(w, &s, firstProblem)
	return s
}

// setValid records what keeps machines from getting VMs, or else what works and hardly as its author expects. The latter is on a set that no
// MachineDeployment has: that has the same template.
func setValid(w World, s *v1alpha1.MachineSetStatus) {
	if w.ClassProblem != "" {
		machinefacts.PutMachineSetCondition(s, v1alpha1.MachineSetCondition{
			Type: v1alpha1.MachineSetValid, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonInvalidClass,
			Message: bounded.Text("No machine gets a VM: "+w.ClassProblem, bounded.Message),
		}, w.Now)
		return
	}
	if is := machinefacts.MachineSetCondition(s, v1alpha1.MachineSetValid); w.ClassUnknown && is != nil && is.Reason == v1alpha1.ReasonInvalidClass {
		return
	}
	var remarks []string
	if metav1.GetControllerOfNoCopy(w.Set) == nil {
		remarks = validation.RemarksOnMachineSet(&w.Set.Spec)
	}
	if len(remarks) == 0 {
		machinefacts.DropMachineSetCondition(s, v1alpha1.MachineSetValid)
		return
	}
	machinefacts.PutMachineSetCondition(s, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetValid, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonRemarks,
		Message: bounded.Text(strings.Join(remarks, "; "), bounded.Message),
	}, w.Now)
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
		machinefacts.DropMachineSetCondition(s, v1alpha1.MachineSetReplicaFailure)
		return
	}
	machinefacts.PutMachineSetCondition(s, condition, w.Now)
}

// setCreateFailure records the error of the first machine, by name, whose VM could not be created.
func setCreateFailure(w World, s *v1alpha1.MachineSetStatus, failed *v1alpha1.Machine) {
	if failed == nil {
		machinefacts.DropMachineSetCondition(s, v1alpha1.MachineSetMachineCreateFailure)
		return
	}
	op := failed.Status.LastOperation
	machinefacts.PutMachineSetCondition(s, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetMachineCreateFailure, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonMachineCreateFailed,
		Message: fmt.Sprintf("Machine %s: %s: %s", failed.Name, op.ErrorCode, op.Description),
	}, w.Now)
}

// news returns the Events of a status that is about to be written: what is wrong with the set, or all that the API server has
// rejected in this pass. What the previous status contains is not reported again. ReplicaFailure has room for one reason, so
// that a second one is reported together with the first one, and not again while that lasts.
func news(w World, written v1alpha1.MachineSetStatus) (events []Event) {
	if is := machinefacts.MachineSetCondition(&written, v1alpha1.MachineSetValid); is != nil && is.Status == corev1.ConditionFalse {
		if before := machinefacts.MachineSetCondition(&w.Set.Status, v1alpha1.MachineSetValid); before != nil && *before == *is {
			return nil
		}
		return []Event{{Reason: validation.EventReason(is.Reason), Message: is.Message}}
	}
	before, is := machinefacts.MachineSetCondition(&w.Set.Status, v1alpha1.MachineSetCreationDelayed), machinefacts.MachineSetCondition(&written, v1alpha1.MachineSetCreationDelayed)
	if before == nil && is != nil {
		events = append(events, Event{Reason: v1alpha1.ReasonMachinesFailEarly, Message: is.Message})
	}
	before, is = machinefacts.MachineSetCondition(&w.Set.Status, v1alpha1.MachineSetReplicaFailure), machinefacts.MachineSetCondition(&written, v1alpha1.MachineSetReplicaFailure)
	known := ""
	if before != nil && before.Status == corev1.ConditionTrue {
		known = before.Reason
	}
	if is == nil || is.Reason == known {
		return events
	}
	for _, refused := range []Event{
		{Reason: v1alpha1.ReasonFailedCreate, Message: w.Done.CreateError}, {Reason: v1alpha1.ReasonFailedDelete, Message: w.Done.DeleteError},
	} {
		if refused.Message != "" && refused.Reason != known {
			events = append(events, refused)
		}
	}
	return events
}
