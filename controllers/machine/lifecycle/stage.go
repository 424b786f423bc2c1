package lifecycle

import (
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Stage is a part of a machine's life that is one trace. "" is none: the machine runs, or has
// failed.
type Stage string

// The stages, with the names of their traces.
const (
	StageCreate Stage = "create machine"
	StageUpdate Stage = "update machine in place"
	StageDelete Stage = "delete machine"
)

// StageOf returns the stage that a machine is in, and since when. A machine is updated in place
// more than once, each time since another time.
func StageOf(m *v1alpha1.Machine) (stage Stage, since time.Time) {
	if m.DeletionTimestamp != nil {
		return StageDelete, m.DeletionTimestamp.Time
	}
	return stageOfPhase(m)
}

func stageOfPhase(m *v1alpha1.Machine) (stage Stage, since time.Time) {
	switch status := m.Status.CurrentStatus; status.Phase { //nolint:exhaustive // the others are in no stage
	case "", v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachinePending:
		return StageCreate, m.CreationTimestamp.Time
	case v1alpha1.MachineInPlaceUpdating:
		return StageUpdate, status.LastUpdateTime.Time
	default:
		return "", time.Time{}
	}
}

// StageEnded returns the stage that the write of a machine ends, since when it has lasted, and why
// it has failed, "" if it has not. events are those of the write.
func StageEnded(before, after *v1alpha1.Machine, events []Event) (stage Stage, since time.Time, failure string) {
	if slices.ContainsFunc(events, func(e Event) bool { return e.Reason == v1alpha1.EventDeleted }) {
		stage, since = StageOf(before)
		return stage, since, ""
	}
	was, since := stageOfPhase(before)
	is, _ := stageOfPhase(after)
	switch phase := after.Status.CurrentStatus.Phase; {
	case was == "" || is == was:
		return "", time.Time{}, ""
	case phase == v1alpha1.MachineFailed, phase == v1alpha1.MachineInPlaceUpdateFailed, phase == v1alpha1.MachineTerminating:
		return was, since, "the machine has become " + string(phase)
	}
	return was, since, ""
}

// byUser is the reason to wait for a user.
const byUser = "a correction by a user"

// aboutVM is the reason to wait until the VM is known.
const aboutVM = "an answer of the cloud about the VM"

// Waits returns what a machine waits for when a pass rests with a verdict, one of few texts; "" if
// for nothing.
func Waits(w World, v Verdict) string {
	if v.Waiting != "" {
		return v.Waiting
	}
	m := w.Machine
	if v.Machine != nil {
		m = v.Machine
	}
	w.Machine = m
	switch _, isLater := waiting(w); {
	case w.Reach.Away, w.TargetProblem != "":
		return "an API server that is away"
	case w.Drain.State == drain.Draining && w.Drain.IsStuck, w.UpdateDrain.State == drain.Draining && w.UpdateDrain.IsStuck,
		w.PreservedDrain.State == preserve.DrainFailed:
		return "a drain that is blocked"
	case w.Drain.State == drain.Draining, w.UpdateDrain.State == drain.Draining, w.PreservedDrain.State == preserve.DrainRunning:
		return "a drain"
	case w.Failure != nil && w.Failure.Held:
		return "the circuit breaker of the account"
	case isLater:
		return "the next call of the cloud after a failure"
	case w.PassError != nil:
		return "the next request to an API server after a failure"
	}
	switch stage, _ := StageOf(m); stage {
	case StageCreate:
		return waitsInCreation(w)
	case StageUpdate:
		return "the update in place"
	case StageDelete:
		return waitsInDeletion(w)
	}
	return waitsInPhase(w)
}

func waitsInCreation(w World) string {
	isPending := w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachinePending
	switch {
	case isPending && w.Node.State != NodePresent:
		return "a Node to appear"
	case isPending:
		return "a healthy Node"
	case w.VM.State == VMEnding:
		return "the end of the VM"
	}
	return byUser
}

func waitsInDeletion(w World) string {
	switch {
	case !hasFinalizer(w.Machine) && len(w.Machine.Finalizers) > 0:
		return "the finalizers of other clients"
	case !hasFinalizer(w.Machine):
		return ""
	case w.VM.State == VMEnding:
		return "the end of the VM"
	}
	return byUser
}

// waitsInPhase returns what a machine waits for that is in no stage.
func waitsInPhase(w World) string {
	m := w.Machine
	deadline, mayFail := machinefacts.HealthDeadline(m, w.Limits.HealthTimeout)
	uncordon, isLater := uncordonAt(m)
	switch phase := m.Status.CurrentStatus.Phase; {
	case phase == v1alpha1.MachineFailed && machinefacts.IsPreserved(m, w.Now):
		return "the end of a preservation"
	case phase == v1alpha1.MachineFailed:
		return "its deletion"
	case phase == v1alpha1.MachineInPlaceUpdateSuccessful:
		return "a healthy Node"
	case mayFail && w.Disruption == DisruptionPending && !w.Now.Before(deadline):
		return "the disruption budget"
	case phase == v1alpha1.MachineUnknown:
		return "an unhealthy Node to recover"
	case phase == v1alpha1.MachineInPlaceUpdateFailed, w.Node.Refused != "":
		return byUser
	case isLater && w.Now.Before(uncordon):
		return "the time to uncordon the Node"
	}
	return ""
}
