package lifecycle

import (
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// DisruptionFact is whether a machine may be given up for its health, which leads to its replacement.
type DisruptionFact int

// The facts. DisruptionPending is the zero value: whoever would replace the machine has not said that it may be.
const (
	DisruptionPending DisruptionFact = iota
	DisruptionAllowed
	// DisruptionUnneeded means that nobody controls the machine, and so nobody replaces it.
	DisruptionUnneeded
)

// unreported is how long a machine may wait for its permit before it says so: mostly it comes at once.
const unreported = 10 * time.Second

// isToBeGivenUp says that the machine's Node has been unhealthy for too long, and that nothing keeps the machine from being
// given up. A permit is a decision that was taken, and is not taken again.
func isToBeGivenUp(w World) bool {
	deadline, may := machinefacts.HealthDeadline(w.Machine, w.Limits.HealthTimeout)
	return may && (w.Disruption == DisruptionAllowed || w.Disruption == DisruptionUnneeded && !w.Now.Before(deadline))
}

// isGivenUp says that the machine has failed and is being replaced. Whatever becomes of its Node, it does not come back: its
// set may be about to delete it, and if it counted as healthy until then another one could be replaced at the same time.
func isGivenUp(w World) bool {
	return w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && w.Disruption == DisruptionAllowed
}

// stayUnhealthy rests until the Node recovers or the health timeout is over. Before a machine is given up its Node is read
// live: a cache that is late, or the way to an API server that is blocked, must not end a machine that is healthy.
func stayUnhealthy(w World, m *v1alpha1.Machine) Verdict {
	deadline, may := machinefacts.HealthDeadline(w.Machine, w.Limits.HealthTimeout)
	switch {
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
		Description: fmt.Sprintf("%s, and for longer than the health timeout. The machine waits to be replaced until others of its MachineDeployment are, or while too many around it are not Ready",
			ailment(w, m)),
	})
	return Verdict{Do: Rest, Machine: m}
}

// ailment says what is wrong with the Node.
func ailment(w World, m *v1alpha1.Machine) string {
	switch {
	case w.Node.State != NodePresent:
		return fmt.Sprintf("Node %q is missing", NodeName(m))
	case isForeign(w, m) && w.Node.Node.Spec.ProviderID != "" && w.Node.Node.Spec.ProviderID != m.Spec.ProviderID:
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

// failHealth gives the machine up.
func failHealth(w World, m *v1alpha1.Machine) Verdict {
	message := ailment(w, m) + ", and for longer than the health timeout; the machine is given up"
	setPhase(w, m, v1alpha1.MachineFailed, false)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateFailed, Description: message,
	})
	return Verdict{Do: Rest, Machine: m, Events: []Event{{Reason: v1alpha1.EventHealthTimedOut, Message: message}}}
}
