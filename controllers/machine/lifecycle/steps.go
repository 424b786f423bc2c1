package lifecycle

import (
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// Step is a step in the life of a machine whose duration is measured.
type Step string

// The steps.
const (
	// StepCreateCall is the call of the driver that created the VM.
	StepCreateCall Step = "create_call"
	// StepCreate is from the creation of the Machine until its VM is recorded.
	StepCreate Step = "create"
	// StepJoin is from then until the Node is healthy for the first time.
	StepJoin Step = "join"
	// StepRun is from the creation of the Machine until then.
	StepRun Step = "run"
	// StepDrain is the drain before the VM is deleted, from the phase Terminating on. A Node without
	// anything to drain has none.
	StepDrain Step = "drain"
	// StepDeleteVM is from the first request to delete the VM until the VM is gone.
	StepDeleteVM Step = "delete_vm"
	// StepDelete is from the request to delete the Machine until nothing of it is left.
	StepDelete Step = "delete"
)

// Steps returns all steps, in the order of a life.
func Steps() []Step {
	return []Step{StepCreateCall, StepCreate, StepJoin, StepRun, StepDrain, StepDeleteVM, StepDelete}
}

// Took is the duration of a step.
type Took struct {
	Step     Step
	Duration time.Duration
}

// StepsEnded returns the steps that ended with the write of a machine, whose Events report it.
// Their durations follow from times on the machine, so that it does not matter which process sent
// the writes before. Of two writes that decide the same, an API server accepts one; so each step
// ends once. before is the machine before the write, and now the time of it.
func StepsEnded(before *v1alpha1.Machine, events []Event, now time.Time) (ended []Took) {
	status := before.Status.CurrentStatus
	took := func(step Step, since time.Time) { ended = append(ended, Took{step, max(now.Sub(since), 0)}) }
	for _, event := range events {
		switch {
		case event.Reason == v1alpha1.EventCreated && (status.Phase == "" || status.Phase == v1alpha1.MachineCrashLoopBackOff):
			took(StepCreate, before.CreationTimestamp.Time)
		case event.Reason == v1alpha1.EventJoined && status.Phase == v1alpha1.MachinePending:
			took(StepJoin, status.LastUpdateTime.Time)
			took(StepRun, before.CreationTimestamp.Time)
		case drainEnded(event):
			took(StepDrain, status.LastUpdateTime.Time)
		case event.Reason == v1alpha1.EventDeleted && before.DeletionTimestamp != nil:
			took(StepDelete, before.DeletionTimestamp.Time)
		}
	}
	return ended
}

// drainEnded reports whether an Event is that of the end of a drain before the VM is deleted.
func drainEnded(event Event) bool {
	return event.Reason == v1alpha1.EventDrained || event.Reason == v1alpha1.EventDrainForced
}

// DeletionBegan reports whether the deletion of a machine began with a write, and why; "" is not
// known.
func DeletionBegan(before, after *v1alpha1.Machine) (why receipt.Rule, began bool) {
	if before.Status.CurrentStatus.Phase == v1alpha1.MachineTerminating || after.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating {
		return "", false
	}
	reason, _ := recordedReason(after)
	return reason.Rule, true
}

// BeforeVM reports whether the write of a machine, with its Events, shows that the deletion of its
// VM was not requested before.
func BeforeVM(before, after *v1alpha1.Machine, events []Event) bool {
	_, isFirst := DeletionBegan(before, after)
	return isFirst || slices.ContainsFunc(events, drainEnded)
}

// Cause is why a machine has failed.
type Cause string

// The causes.
const (
	// CauseCreate is a VM that could not be created within the creation timeout, or cannot become a
	// Node.
	CauseCreate Cause = "create"
	// CauseJoin is a VM that did not become a healthy Node within the creation timeout.
	CauseJoin Cause = "join"
	// CauseHealth is a Node that was not healthy for the health timeout.
	CauseHealth Cause = "health"
	// CauseOther is any other.
	CauseOther Cause = "other"
)

// Failed returns why a machine has failed with a write; ok is false when it has not.
func Failed(before, after *v1alpha1.Machine) (cause Cause, ok bool) {
	was := before.Status.CurrentStatus.Phase
	if was == v1alpha1.MachineFailed || after.Status.CurrentStatus.Phase != v1alpha1.MachineFailed {
		return "", false
	}
	switch operation := after.Status.LastOperation.Type; {
	case operation == v1alpha1.MachineOperationHealthCheck:
		return CauseHealth, true
	case operation != v1alpha1.MachineOperationCreate:
		return CauseOther, true
	case was == v1alpha1.MachinePending:
		return CauseJoin, true
	}
	return CauseCreate, true
}
