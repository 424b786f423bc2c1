package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// isClaimed reports whether the Node has our finalizer, the machine's name and its slot.
func isClaimed(w World) bool {
	if w.Node.State != NodePresent {
		return false
	}
	return wantedNode(w).IsTied(w.Node.Node)
}

// neverJoined reports whether the machine has not been a healthy Node yet.
func neverJoined(m *v1alpha1.Machine) bool {
	last := m.Status.LastOperation
	return last.Type == "" || last.Type == v1alpha1.MachineOperationCreate && last.State != v1alpha1.MachineStateSuccessful
}

// waitForNode rests until the Node changes. The machine fails when it has waited for longer than it
// may.
func waitForNode(w World, m *v1alpha1.Machine) Verdict {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // all others have run, and wait for nothing but their Node
	case v1alpha1.MachinePending:
	case v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful:
		return awaitUpdate(w, m)
	default:
		return stayUnhealthy(w, m)
	}
	if !isOverdue(w) {
		if m.Status.LastOperation.State == v1alpha1.MachineStateFailed || w.Node.Elsewhere != "" {
			awaitNode(w, m) // the cause for which it had no Node is over, or known
		}
		wake := until(w, joinDeadline(w))
		if w.Node.State != NodePresent {
			wake = min(wake, until(w, nextLook(w)))
		}
		if due := tokenDue(w); !due.IsZero() {
			if !w.Now.Before(due) && w.Token == TokenUnknown {
				return do(ProlongToken)
			}
			wake = min(wake, until(w, due))
		}
		return Verdict{Do: Rest, Machine: m, Wake: wake}
	}
	message := fmt.Sprintf("the VM exists and did not become a healthy Node within the creation timeout of %s%s",
		machinefacts.CreationTimeout(m, w.Limits.CreationTimeout), withoutToken(w)+withoutProviderID(w, m)+elsewhere(w))
	setPhase(w, m, v1alpha1.MachineFailed, false)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateFailed,
		ErrorCode: driver.DeadlineExceeded.String(), Description: message,
	})
	return Verdict{Do: Rest, Machine: m, Events: []Event{{Reason: v1alpha1.EventJoinTimedOut, Message: message}}}
}

// isOverdue reports whether the machine has waited for its Node for as long as it may.
func isOverdue(w World) bool {
	return w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachinePending && !w.Now.Before(joinDeadline(w))
}

// firstLook is how long a machine waits for the cache to show its Node before it is looked for past
// the cache: a Node can have the slot label of another slot, and then only its holder follows it.
// Nearly all VMs join within a minute.
const firstLook = time.Minute

// isLookDue reports whether the machine has waited for so long that a Node which the cache does not
// show may exist.
func isLookDue(w World) bool {
	return w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachinePending && !w.Now.Before(waitsSince(w).Add(firstLook))
}

// nextLook returns when to look for the Node again: each time after twice as long, so that a VM
// that takes long costs little.
func nextLook(w World) time.Time {
	since, wait := waitsSince(w), firstLook
	for !w.Now.Before(since.Add(wait)) {
		wait *= 2
	}
	return since.Add(wait)
}

// waitsSince returns when the time began in which the machine has to join.
func waitsSince(w World) time.Time {
	return joinDeadline(w).Add(-machinefacts.CreationTimeout(w.Machine, w.Limits.CreationTimeout))
}

// joinDeadline is the creation deadline, or, for a VM that was created only after that, one timeout
// later: what delayed the VM is over, and the VM gets the whole timeout to join.
func joinDeadline(w World) time.Time {
	pending := w.Machine.Status.CurrentStatus.LastUpdateTime.Time
	if pending.Before(machinefacts.CreationDeadline(w.Machine, w.Limits.CreationTimeout)) {
		return creationDeadline(w)
	}
	return extended(w, pending, pending.Add(machinefacts.CreationTimeout(w.Machine, w.Limits.CreationTimeout)))
}

// elsewhere returns the remark on a VM whose Node has joined under another name than the one that
// the driver has returned.
func elsewhere(w World) string {
	if w.Node.Elsewhere == "" {
		return ""
	}
	return fmt.Sprintf("; Node %q has the provider ID of this VM and not the name %q, which the driver has returned: "+
		"the kubelet has to register under that name",
		w.Node.Elsewhere, NodeName(w.Machine))
}

// withoutProviderID returns the remark on a VM whose Node does not join that a Node without a
// provider ID has joined.
func withoutProviderID(w World, m *v1alpha1.Machine) string {
	if w.Node.State != NodePresent || !isNameless(w.Node.Node) {
		return ""
	}
	return "; " + foreignNodeMessage(m, w.Node.Node)
}

// awaitProviderID waits until a Node that has joined names its VM.
func awaitProviderID(w World, m *v1alpha1.Machine) Verdict {
	v := waitForNode(w, m)
	if m.Status.CurrentStatus.Phase == v1alpha1.MachinePending {
		setOperation(w, m, v1alpha1.LastOperation{
			Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateProcessing,
			Description: "Creating machine on cloud provider: " + foreignNodeMessage(m, w.Node.Node),
		})
		return wakeAt(w, v, nextLook(w)) // the watch of Nodes in no slot reports the change, too
	}
	return v
}

func becameUnhealthy(w World, m *v1alpha1.Machine, message string) Verdict {
	setPhase(w, m, v1alpha1.MachineUnknown, true)
	_, m.Status.CurrentStatus.TimeoutActive = machinefacts.HealthDeadline(m, w.Limits.HealthTimeout)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateProcessing, Description: message,
	})
	return Verdict{Do: Rest, Machine: m, Events: []Event{{Reason: v1alpha1.EventNodeUnhealthy, Message: message}}}
}

// becameHealthy records that the Node is healthy, for the first time or again. Either is a health
// check: to the cluster-autoscaler a machine whose last operation is Create has no Node yet.
func becameHealthy(w World, m *v1alpha1.Machine) Verdict {
	event := Event{Reason: v1alpha1.EventNodeHealthy, Message: fmt.Sprintf("Node %q is healthy again", w.Node.Node.Name)}
	op := v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateSuccessful,
		Description: fmt.Sprintf("Machine %s successfully re-joined the cluster", m.Name),
	}
	if neverJoined(m) {
		event = Event{Reason: v1alpha1.EventJoined, Message: fmt.Sprintf("Node %q has joined and is healthy", w.Node.Node.Name)}
		op.Description = fmt.Sprintf("Machine %s successfully joined the cluster", m.Name)
	}
	endBackoff(m)
	setPhase(w, m, v1alpha1.MachineRunning, false)
	setOperation(w, m, op)
	return Verdict{Do: Save, Machine: m, Events: []Event{event}}
}

// health returns whether the Node is healthy, and why it is not: Ready must be True, none of the
// listed conditions may be other than False, and a machine that has not been running yet also waits
// for the critical components. Ready is named before others: all are Unknown when a kubelet is
// away.
func health(w World) (reason string, healthy bool) {
	node := w.Node.Node
	bad := w.Limits.NodeConditions
	if c := w.Machine.Spec.MachineConfiguration; c != nil && c.NodeConditions != nil {
		bad = NodeConditions(*c.NodeConditions)
	}
	notReady, other := "it has no Ready condition", ""
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue:
			notReady = ""
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
			notReady = "it is unreachable, its kubelet does not report (Ready is Unknown)"
		case c.Type == corev1.NodeReady:
			notReady = "Ready is " + string(c.Status)
		case other == "" && c.Status != corev1.ConditionFalse && slices.Contains(bad, string(c.Type)):
			other = fmt.Sprintf("%s is %s", c.Type, c.Status)
		}
	}
	if reason = cmp.Or(notReady, other); reason != "" {
		return reason, false
	}
	if w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachinePending && machinefacts.AwaitsComponents(node) {
		return "it has the taint " + v1alpha1.TaintCriticalComponentsNotReady, false
	}
	return "", true
}

// NodeConditions reads a list of types of Node conditions, separated by commas.
func NodeConditions(list string) (types []string) {
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimSpace(t); t != "" {
			types = append(types, t)
		}
	}
	return types
}

// mostConditions is how many conditions of a Node are mirrored, each with texts of at most
// bounded.Message bytes. A kubelet may have any number of any size, and a machine has to be
// written.
const mostConditions = 64

// mirror copies the Node's conditions when any appeared, went, or changed its status or reason.
// Heartbeats alone are not worth a write.
func mirror(m *v1alpha1.Machine, node *corev1.Node) {
	conditions := slices.Clone(node.Status.Conditions[:min(len(node.Status.Conditions), mostConditions)])
	for i := range conditions {
		c := &conditions[i]
		c.Type = corev1.NodeConditionType(bounded.Text(string(c.Type), bounded.Message))
		c.Reason, c.Message = bounded.Text(c.Reason, bounded.Message), bounded.Text(c.Message, bounded.Message)
	}
	// The reason of the deletion is the machine's, regardless of what a kubelet writes.
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineTerminating {
		conditions = slices.DeleteFunc(conditions, isReason)
		if i := slices.IndexFunc(m.Status.Conditions, isReason); i >= 0 {
			conditions = append(conditions, m.Status.Conditions[i])
		}
	}
	same := slices.EqualFunc(m.Status.Conditions, conditions, func(a, b corev1.NodeCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
	if !same {
		m.Status.Conditions = conditions
	}
}

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
const pending = "Replacement pending: deletions are held, the deletion budget or the disruption budget is exhausted, " +
	"or a circuit breaker is open; " +
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

// EvidenceFact contains what the cloud has reported of the VM of a machine whose Node is
// unreachable. It is for people: no decision depends on it.
type EvidenceFact struct {
	// MayAsk reports whether the cloud may be asked: it was not since the machine is unhealthy, and
	// the limit on such calls allows one.
	MayAsk bool
	// Text contains its report; "" when it was not asked.
	Text string
}

// isUnreachable reports whether the machine is unhealthy because its Node is gone, or its kubelet
// does not report: it may be that the VM does not run.
func isUnreachable(w World) bool {
	if w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineUnknown || isForeign(w, w.Machine) {
		return false
	}
	if w.Node.State != NodePresent {
		return w.Node.State == NodeAbsent
	}
	ready := machinefacts.NodeCondition(w.Node.Node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionUnknown
}

// isEvidenceDue reports whether the cloud is to be asked for the VM of a machine whose Node is
// unreachable.
func isEvidenceDue(w World) bool {
	_, missing := missingForCloud(w)
	return w.Evidence.MayAsk && !w.Reach.Away && missing == "" && isUnreachable(w)
}

// shownEvidence returns what a text about an unreachable Node ends with: what the cloud has
// reported of its VM; "" when that is nothing.
func shownEvidence(w World) string {
	if w.Evidence.Text == "" || !isUnreachable(w) {
		return ""
	}
	return "; " + w.Evidence.Text
}

// EvidenceOf returns what the cloud has answered in this pass about the VM of a machine whose Node
// is unreachable, with the time; "" when that shows nothing.
func EvidenceOf(w World) string {
	exists := w.VM.State == VMPresent || w.VM.State == VMUninitialized
	var answer string
	switch {
	case w.Failure != nil:
		answer = fmt.Sprintf("did not report whether it has its VM (%s)", w.Failure.Code)
	case w.VM.State == VMAbsent:
		answer = "had no VM of this machine"
	case exists && w.VM.VM.State != "":
		answer = fmt.Sprintf("reported the state of its VM as %q", w.VM.VM.State)
	case exists:
		answer = "had its VM"
	default:
		return ""
	}
	return fmt.Sprintf("the cloud %s at %s", answer, w.Now.UTC().Format(time.RFC3339))
}

// checkSetUp decides when the machine has failed before its Node joined, the Node is healthy, and
// the VM is not set up: such a machine does not recover. Its Node lacks what InitializeMachine
// does, such as routes for its pods. The cloud is asked, since a machine does not record which of
// the calls has failed.
func checkSetUp(w World) (v Verdict, decided bool) {
	if !isHealthy(w) || w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || !neverJoined(w.Machine) {
		return Verdict{}, false
	}
	switch w.VM.State {
	case VMUninitialized: // it remains so: nothing is created for a machine that has failed
		v = Verdict{Do: Rest, Machine: observed(w)}
		if w.VM.Invalid != "" { // whether it is, the driver has not shown
			v.Wake, v.Waiting = ownerRetry, aboutVM
		}
		return v, true
	case VMUnknown:
	case VMAbsent, VMPresent, VMEnding, VMHidden:
		return Verdict{}, false
	}
	switch _, missing := missingForCloud(w); {
	case missing != "" || w.Failure != nil:
		return Verdict{Do: Rest, Machine: observed(w), Wake: ownerRetry, Waiting: aboutVM}, true
	case !w.Secret.Read:
		return do(ReadSecret), true
	}
	return do(FindVM), true
}
