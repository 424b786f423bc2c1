package lifecycle

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// PassError is an error of an API server with an action, which has lasted for a while. The action
// is tried again.
type PassError struct {
	Code    driver.Code
	Message string
}

// reportPassError records the error for which a machine makes no progress. No machine fails for it:
// a replacement would meet the same error. A machine that is unhealthy or has failed keeps the
// report of that.
func reportPassError(w World) Verdict {
	m := w.Machine.DeepCopy()
	switch phase := m.Status.CurrentStatus.Phase; {
	case isWaitedAfter(w):
		return rest(0) // it only waits, and the autoscaler reads what it waits for
	case m.DeletionTimestamp != nil:
		noteToken(w, m)
		if m.Status.LastOperation.Type != v1alpha1.MachineOperationDelete {
			endBackoff(m) // it is that of the creation
		}
		return Verdict{Do: Rest, Machine: m, Events: notePassError(w, m, v1alpha1.MachineOperationDelete, v1alpha1.EventDeleteFailed)}
	case isBeingCreated(w):
		setPhase(w, m, v1alpha1.MachineCrashLoopBackOff, false)
		return Verdict{Do: Rest, Machine: m, Events: notePassError(w, m, v1alpha1.MachineOperationCreate, v1alpha1.EventCreateFailed)}
	case phase == v1alpha1.MachinePending:
		return Verdict{Do: Rest, Machine: m, Events: notePassError(w, m, v1alpha1.MachineOperationCreate, v1alpha1.EventCreateFailed)}
	case phase == v1alpha1.MachineRunning:
		setOperation(w, m, v1alpha1.LastOperation{ // not a failure that its set should report
			Type: v1alpha1.MachineOperationUpdate, State: v1alpha1.MachineStateProcessing, ErrorCode: w.PassError.Code.String(), Description: w.PassError.Message,
		})
		return Verdict{Do: Rest, Machine: m}
	}
	return rest(0)
}

// notePassError records that an operation fails, and returns the Event of that; none if it was
// reported before.
func notePassError(w World, m *v1alpha1.Machine, op v1alpha1.MachineOperationType, reason string) []Event {
	if _, known := noteFailure(w, m, op, w.PassError.Code, w.PassError.Message); known {
		return nil
	}
	return []Event{{Reason: reason, Message: w.PassError.Message}}
}

// endPassError records that the error of a machine is over, where its Node is in sync.
func endPassError(w World, v Verdict) Verdict {
	last := w.Machine.Status.LastOperation
	if last.Type != v1alpha1.MachineOperationUpdate || last.ErrorCode == "" || v.Machine != nil && v.Machine.Status.LastOperation != last {
		return v
	}
	if v.Machine == nil {
		v.Machine = w.Machine.DeepCopy()
	}
	setOperation(w, v.Machine, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationUpdate, State: v1alpha1.MachineStateSuccessful, Description: "The Node is in sync",
	})
	return v
}
