package lifecycle

import (
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// DisruptionFact is whether a machine may fail for its health, which leads to its replacement.
type DisruptionFact int

// The facts. DisruptionPending is the zero value: the machine waits for its disruption.
const (
	DisruptionPending DisruptionFact = iota
	DisruptionAllowed
	// DisruptionUnneeded means that the machine has no controller, so that it is not replaced.
	DisruptionUnneeded
)

// pending is the remark on a machine that waits for its disruption. It names no single cause: the
// machine is not decided on again when that changes, and the conditions of its root are.
const pending = "Replacement pending: deletions are held, the deletion budget or the disruption budget is exhausted, or a circuit breaker is open; " +
	"see the conditions DeletionsHeld and CircuitBreakerOpen of its MachineDeployment, or of its MachineSet if that has no controller"

// unreported is how long a machine waits for its disruption before it reports that: mostly it gets
// it at once.
const unreported = 10 * time.Second

// isToBeGivenUp reports whether the machine's Node has been unhealthy for longer than the health
// timeout, and the machine has its disruption or needs none. A disruption was decided once, and is
// not decided again here.
func isToBeGivenUp(w World) bool {
	deadline, may := machinefacts.HealthDeadline(w.Machine, w.Limits.HealthTimeout)
	return may && isSettled(w) && (w.Disruption == DisruptionAllowed || w.Disruption == DisruptionUnneeded && !w.Now.Before(deadline))
}

// isGivenUp reports whether the machine has failed and is being replaced. A healthy Node does not
// change that: its set may be about to delete it, and if it counted as healthy until then another
// one could be replaced at the same time.
func isGivenUp(w World) bool {
	return w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && w.Disruption == DisruptionAllowed
}

// stayUnhealthy rests until the Node recovers or the health timeout is over. Before a machine fails
// its Node is read live: neither a late cache nor an unreachable API server may end a healthy
// machine.
func stayUnhealthy(w World, m *v1alpha1.Machine) Verdict {
	if v, decided := beginAnew(w, m); decided {
		return v
	}
	if isEvidenceDue(w) {
		return do(AskCloud)
	}
	if evidence := shownEvidence(w); evidence != "" {
		setOperation(w, m, v1alpha1.LastOperation{
			Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateProcessing, Description: notReadyReason(w, m) + evidence,
		})
	}
	deadline, may := machinefacts.HealthDeadline(w.Machine, w.Limits.HealthTimeout)
	switch {
	case may && w.Now.Before(w.Reach.Settled()):
		return Verdict{Do: Rest, Machine: m, Wake: until(w, w.Reach.Settled())}
	case isToBeGivenUp(w) && w.Node.State == NodePresent && !w.Node.Live:
		return do(FindNode)
	case isToBeGivenUp(w):
		return failHealth(w, m)
	case !may:
		return Verdict{Do: Rest, Machine: m}
	case w.Disruption == DisruptionUnneeded:
		return Verdict{Do: Rest, Machine: m, Wake: until(w, deadline)}
	case w.Now.Before(deadline.Add(unreported)):
		return Verdict{Do: Rest, Machine: m, Wake: until(w, deadline.Add(unreported))}
	}
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateProcessing,
		Description: fmt.Sprintf("%s, for longer than the health timeout%s. %s", notReadyReason(w, m), shownEvidence(w), pending),
	})
	return Verdict{Do: Rest, Machine: m}
}

// notReadyReason returns what is wrong with the Node.
func notReadyReason(w World, m *v1alpha1.Machine) string {
	switch {
	case w.Node.State != NodePresent:
		return fmt.Sprintf("Node %q is missing", NodeName(m))
	case isForeign(w, m) && w.Node.Node.Spec.ProviderID != "" && !driver.SameVM(m.Spec.ProviderID, w.Node.Node.Spec.ProviderID):
		return fmt.Sprintf("Node %q belongs to another VM, and not to %s", w.Node.Node.Name, m.Spec.ProviderID)
	case isForeign(w, m):
		return foreignNodeMessage(m, w.Node.Node)
	}
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdateFailed {
		return fmt.Sprintf("Node %q is not updated in place%s", w.Node.Node.Name, inplace.WhyFailed(w.Node.Node))
	}
	reason, _ := health(w)
	return fmt.Sprintf("Node %q is not healthy: %s", w.Node.Node.Name, reason)
}

// failHealth has the machine fail for its health.
func failHealth(w World, m *v1alpha1.Machine) Verdict {
	message := notReadyReason(w, m) + ", for longer than the health timeout; the machine has failed" + shownEvidence(w)
	setPhase(w, m, v1alpha1.MachineFailed, false)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateFailed, Description: message,
	})
	return Verdict{Do: Rest, Machine: m, Events: []Event{{Reason: v1alpha1.EventHealthTimedOut, Message: message}}}
}
