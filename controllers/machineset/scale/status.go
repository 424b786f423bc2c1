package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
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
	}
	failed := failedMachines(w)
	if s.FailedMachines = &failed; len(failed) == 0 {
		s.FailedMachines = nil
	}
	if len(w.Done.Released) > 0 { // so that the time of the condition is that of the last release
		machinefacts.SetConditionOfSet(&s, v1alpha1.MachineSetMachinesReleased, machinefacts.Condition{}, w.Now)
	}
	for _, c := range []struct {
		of v1alpha1.MachineSetConditionType
		is machinefacts.Condition
	}{
		{v1alpha1.MachineSetValid, validity(w)},
		{v1alpha1.MachineSetFrozen, frozen(w)},
		{v1alpha1.MachineSetDeletionsHeld, held(w)},
		{v1alpha1.MachineSetMachinesReleased, released(w)},
		{v1alpha1.MachineSetCreationDelayed, creationDelayed(w)},
		{v1alpha1.MachineSetReplicaFailure, replicaFailure(w)},
		{v1alpha1.MachineSetMachineCreateFailure, createFailure(failed)},
	} {
		machinefacts.SetConditionOfSet(&s, c.of, c.is, w.Now)
	}
	return s
}

// validity returns the condition Valid. Remarks are on a set that no MachineDeployment has: that
// has the same template.
func validity(w World) machinefacts.Condition {
	class := machinefacts.Condition{}
	is := machinefacts.ConditionOfSet(&w.Set.Status, v1alpha1.MachineSetValid)
	if wait, waits := machinefacts.AwaitsTarget(is, w.TargetProblem, w.TargetPending); waits {
		return wait
	}
	switch {
	case w.ClassProblem != "":
		class = machinefacts.False(v1alpha1.ReasonInvalidClass, "No machine gets a VM: "+w.ClassProblem)
	case w.ClassUnknown && is.Reason == v1alpha1.ReasonInvalidClass:
		class = is
	}
	if metav1.GetControllerOfNoCopy(w.Set) != nil {
		return machinefacts.Validity(class, nil)
	}
	return machinefacts.Validity(class, validation.RemarksOnMachineSet(&w.Set.Spec))
}

// replicaFailure returns the condition about what the API server rejects. Errors of a cloud are not
// part of it: clients such as Gardener's health check interpret ReplicaFailure as a defect of the
// MachineSet.
func replicaFailure(w World) machinefacts.Condition {
	switch {
	case w.Done.CreateError != "":
		return machinefacts.True(v1alpha1.ReasonFailedCreate, w.Done.CreateError)
	case w.Done.DeleteError != "":
		return machinefacts.True(v1alpha1.ReasonFailedDelete, w.Done.DeleteError)
	}
	return machinefacts.Condition{}
}

// failedMachines returns the machines whose last operation has failed, by name, without those that
// are preserved.
func failedMachines(w World) (failed []v1alpha1.MachineSummary) {
	for _, m := range w.Owned {
		if m.Status.LastOperation.State == v1alpha1.MachineStateFailed && !machinefacts.IsPreserved(m, w.Now) {
			failed = append(failed, v1alpha1.MachineSummary{
				Name: m.Name, ProviderID: m.Spec.ProviderID, LastOperation: m.Status.LastOperation, OwnerRef: w.Set.Name,
			})
		}
	}
	slices.SortFunc(failed, func(a, b v1alpha1.MachineSummary) int { return strings.Compare(a.Name, b.Name) })
	return failed
}

// createFailure returns the condition with the error of the first failed machine, by name, whose VM
// could not be created.
func createFailure(failed []v1alpha1.MachineSummary) machinefacts.Condition {
	for _, m := range failed {
		if op := m.LastOperation; op.Type == v1alpha1.MachineOperationCreate {
			return machinefacts.True(v1alpha1.ReasonMachineCreateFailed, fmt.Sprintf("Machine %s: %s: %s", m.Name, op.ErrorCode, op.Description))
		}
	}
	return machinefacts.Condition{}
}

// statusEvents returns the Events of a status that is about to be written: what is wrong with the
// set, or all that the API server has rejected in this pass. What the previous status contains is
// not reported again. ReplicaFailure has room for one reason, so that a second one is reported
// together with the first one, and not again while that lasts.
func statusEvents(w World, written v1alpha1.MachineSetStatus) (events []Event) {
	conditions := func(t v1alpha1.MachineSetConditionType) (before, is machinefacts.Condition) {
		return machinefacts.ConditionOfSet(&w.Set.Status, t), machinefacts.ConditionOfSet(&written, t)
	}
	if before, is := conditions(v1alpha1.MachineSetValid); is.Status == corev1.ConditionFalse {
		if before == is || is.Reason == v1alpha1.ReasonTargetUnavailable && before.Reason == is.Reason {
			return nil
		}
		return []Event{{Reason: validation.EventReason(is.Reason), Message: is.Message}}
	}
	none := machinefacts.Condition{}
	if before, is := conditions(v1alpha1.MachineSetCreationDelayed); before == none && is != none {
		events = append(events, Event{Reason: v1alpha1.ReasonMachinesFailEarly, Message: is.Message})
	}
	before, is := conditions(v1alpha1.MachineSetReplicaFailure)
	if !before.IsTrue() {
		before = none
	}
	if is == none || is.Reason == before.Reason {
		return events
	}
	for _, refused := range []Event{
		{Reason: v1alpha1.ReasonFailedCreate, Message: w.Done.CreateError}, {Reason: v1alpha1.ReasonFailedDelete, Message: w.Done.DeleteError},
	} {
		if refused.Message != "" && refused.Reason != before.Reason {
			events = append(events, refused)
		}
	}
	return events
}

// availability reports whether a machine is available; and if only time is missing, how much.
func availability(w World, m *v1alpha1.Machine) (available bool, in time.Duration) {
	return machinefacts.Available(m, machinefacts.MinReady(w.Set, w.CountMinReady), w.Now)
}

// nextChange returns when, from now, time alone changes the status: another machine is available,
// the preservation of a failed one ends, or a condition; 0 when none of these is about to happen.
func nextChange(w World) (next time.Duration) {
	for _, m := range w.Owned {
		if _, in := availability(w, m); in > 0 {
			next = machinefacts.Sooner(next, in)
		}
	}
	if is := machinefacts.MachineSetCondition(&w.Set.Status, v1alpha1.MachineSetMachinesReleased); is != nil {
		next = machinefacts.Sooner(next, releasedStill(w.Now, is))
	}
	if w.TargetProblem != "" || w.TargetPending {
		next = machinefacts.Sooner(next, machinefacts.TargetRecheck)
	}
	next = machinefacts.Sooner(next, lossesChange(w))
	return machinefacts.Sooner(next, machinefacts.PreservationEnds(w.Owned, w.Now))
}
