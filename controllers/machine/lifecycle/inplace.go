package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// checkUpdate decides when the in-place update of the Node begins or ends, while it lasts, and when
// it has failed. The Node's health does not count then: the Node may restart.
func checkUpdate(w World) (v Verdict, decided bool) {
	phase, result := w.Machine.Status.CurrentStatus.Phase, inplace.Result(w.Node.Node)
	isUpdating, hasFailed := phase == v1alpha1.MachineInPlaceUpdating, phase == v1alpha1.MachineInPlaceUpdateFailed
	runs := phase == v1alpha1.MachineRunning
	switch {
	case result == v1alpha1.UpdateResultSuccessful && (isUpdating || hasFailed):
		return updateSucceeded(w, observed(w)), true
	case result == v1alpha1.UpdateResultFailed && (isUpdating || runs):
		return updateFailed(w, observed(w),
			fmt.Sprintf("Node %q could not be updated in place%s", w.Node.Node.Name, inplace.WhyFailed(w.Node.Node))), true
	case inplace.IsDrained(w.Node.Node) && (runs && isHealthy(w) || hasFailed):
		return beginUpdate(w, observed(w)), true
	case isUpdating, hasFailed:
		return waitForNode(w, observed(w)), true
	case phase == v1alpha1.MachineFailed && inplace.IsUnfinished(w.Node.Node):
		return Verdict{Do: Rest, Machine: observed(w)}, true // healthy or not, the Node does not have the template of its machine
	}
	return Verdict{}, false
}

// beginUpdate records that the Node is drained. When that is written, the Node is marked as ready
// for the agent.
func beginUpdate(w World, m *v1alpha1.Machine) Verdict {
	message := inplace.Reported(w.Node.Node) + " The in-place update begins"
	setPhase(w, m, v1alpha1.MachineInPlaceUpdating, true)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationInPlaceUpdate, State: v1alpha1.MachineStateProcessing, Description: message,
	})
	return Verdict{Do: Save, Machine: m, Events: []Event{{Reason: v1alpha1.EventInPlaceUpdating, Message: message}}}
}

func updateSucceeded(w World, m *v1alpha1.Machine) Verdict {
	message := fmt.Sprintf("Node %q was updated in place", w.Node.Node.Name)
	setPhase(w, m, v1alpha1.MachineInPlaceUpdateSuccessful, true)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationInPlaceUpdate, State: v1alpha1.MachineStateSuccessful, Description: message,
	})
	return Verdict{Do: Save, Machine: m, Events: []Event{{Reason: v1alpha1.EventInPlaceUpdated, Message: message}}}
}

// updateFailed records the failure. The machine then waits for a user to correct the cause, or is
// replaced as an unhealthy one.
func updateFailed(w World, m *v1alpha1.Machine, message string) Verdict {
	setPhase(w, m, v1alpha1.MachineInPlaceUpdateFailed, true)
	_, m.Status.CurrentStatus.TimeoutActive = machinefacts.HealthDeadline(m, w.Limits.HealthTimeout)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationInPlaceUpdate, State: v1alpha1.MachineStateFailed, Description: message,
	})
	return Verdict{Do: Save, Machine: m, Events: []Event{{Reason: v1alpha1.EventInPlaceFailed, Message: message}}}
}

// awaitUpdate rests until the Node is updated, or healthy after that, or the timeout is over.
// Before a timeout has an effect, the Node is read live: a cache that is late must not end an
// update that is done.
func awaitUpdate(w World, m *v1alpha1.Machine) Verdict {
	name, timeout := NodeName(m), machinefacts.InPlaceUpdateTimeout(m, w.Limits.InPlaceUpdateTimeout)
	switch {
	case !isUpdateOverdue(w):
		return Verdict{Do: Rest, Machine: m, Wake: until(w, updateDeadline(w))}
	case w.Node.State == NodePresent && !w.Node.Live:
		return do(FindNode)
	case m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdateSuccessful:
		return becameUnhealthy(w, m, fmt.Sprintf("%s, %s after its update in place", notReadyReason(w, m), timeout))
	}
	return updateFailed(w, m, fmt.Sprintf("Node %q was not updated in place within the timeout of %s", name, timeout))
}

// isUpdateOverdue reports whether the Node's update, or its return from that, has taken longer than
// it may.
func isUpdateOverdue(w World) bool {
	phase := w.Machine.Status.CurrentStatus.Phase
	return (phase == v1alpha1.MachineInPlaceUpdating || phase == v1alpha1.MachineInPlaceUpdateSuccessful) && !w.Now.Before(updateDeadline(w))
}

// updateDeadline returns until when the update, or the return from it, may take.
func updateDeadline(w World) time.Time {
	return extended(w, w.Machine.Status.CurrentStatus.LastUpdateTime.Time,
		machinefacts.InPlaceUpdateDeadline(w.Machine, w.Limits.InPlaceUpdateTimeout))
}

// updateInPlace returns what the Node has to carry for its in-place update.
func updateInPlace(w World, v Verdict, node *corev1.Node) inplace.Verdict {
	m := w.Machine
	if v.Machine != nil {
		m = v.Machine
	}
	drained := ""
	if w.UpdateDrain.State.Ended() {
		drained = w.UpdateDrain.Text
	}
	// A machine without a controller changes no set, and one whose set is not in the cache may be
	// about to.
	inOldSet := w.Rollout == nil && w.Disruption != DisruptionUnneeded || w.Rollout != nil && w.Rollout.IsOld
	return inplace.Decide(inplace.World{
		Now: w.Now, Machine: m, Node: node, InOldSet: inOldSet, NoComponentsTaint: w.NoComponentsTaint, Drained: drained,
	})
}

// reportUpdateDrain adds to a verdict on a running machine how far the drain before its update is,
// and that it has ended when the Node is not selected any more. An unhealthy machine keeps the
// report of its health.
func reportUpdateDrain(w World, v Verdict) Verdict {
	m, r := w.Machine, w.UpdateDrain
	if v.Machine != nil {
		m = v.Machine
	}
	op := v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDrainNode, State: v1alpha1.MachineStateProcessing, Description: r.Text}
	last := m.Status.LastOperation
	if r.State == drain.Draining && r.Wake > 0 {
		v = wakeAt(w, v, w.Now.Add(r.Wake))
	}
	switch {
	case m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning:
		return v
	case r.State == drain.Draining && r.Text != "":
		if r.IsStuck {
			op.State = v1alpha1.MachineStateFailed
		}
		if r.IsStuck && (last.Type != op.Type || last.State != op.State) {
			v = v.with(v1alpha1.EventDrainBlocked, r.Text)
		}
	case r.State == drain.Unknown && last.Type == v1alpha1.MachineOperationDrainNode:
		op.State, op.Description = v1alpha1.MachineStateSuccessful,
			"Drain of the Node ended: the Node is not selected for an in-place update any more"
	default:
		return v
	}
	if last.Type == op.Type && last.State == op.State && last.Description == op.Description {
		return v
	}
	v.Machine = m.DeepCopy()
	setOperation(w, v.Machine, op)
	return v
}
