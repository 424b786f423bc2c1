package lifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// Action is one thing to do.
type Action string

// The actions.
const (
	// Rest ends the pass: Verdict.Machine is written.
	Rest Action = "Rest"
	// Save writes Verdict.Machine, because what follows needs it written.
	Save Action = "Save"
	// ReadSecret reads the class' secrets.
	ReadSecret Action = "ReadSecret"
	// ReadConfig looks for the configuration that the machine boots with.
	ReadConfig Action = "ReadConfig"
	// AddFinalizers adds our finalizers to class and secrets.
	AddFinalizers Action = "AddFinalizers"
	// FindVM asks the cloud for the machine's VM.
	FindVM Action = "FindVM"
	// AskCloud asks the cloud for the VM of a machine whose Node is unreachable, and records the
	// answer in World.Evidence. It never fails.
	AskCloud Action = "AskCloud"
	// CheckFields asks the driver which fields of the class' provider spec it ignores, and reports
	// them on the class.
	CheckFields Action = "CheckFields"
	// CreateToken creates the machine's bootstrap token, or reads the one that it has.
	CreateToken Action = "CreateToken"
	// ProlongToken extends the validity of the machine's bootstrap token, if there is one.
	ProlongToken Action = "ProlongToken"
	// DropToken removes the machine's bootstrap token.
	DropToken Action = "DropToken"
	// CreateVM has the cloud create the VM.
	CreateVM Action = "CreateVM"
	// InitializeVM has the cloud set up a VM that was created.
	InitializeVM Action = "InitializeVM"
	// DeleteVM has the cloud remove the VM.
	DeleteVM Action = "DeleteVM"
	// FindNode reads the Node from the API server.
	FindNode Action = "FindNode"
	// FindNodeClaims lists from the API server the other machines that name the Node, and FindVMClaims
	// those that name the VM.
	FindNodeClaims Action = "FindNodeClaims"
	FindVMClaims   Action = "FindVMClaims"
	// ClaimNode binds the Node to the machine, and adds our finalizer, the machine's name, its slot
	// and all other metadata of Verdict.Patch to it.
	ClaimNode Action = "ClaimNode"
	// PatchNode writes Verdict.Patch to a claimed Node, which brings it in sync with its machine.
	PatchNode Action = "PatchNode"
	// DrainPreserved drains the Node of a failed machine that is preserved, as far as that goes
	// without waiting, and records its progress in World.PreservedDrain.
	DrainPreserved Action = "DrainPreserved"
	// DrainForUpdate drains the Node before its in-place update, as far as that goes without waiting,
	// and records its progress in World.UpdateDrain.
	DrainForUpdate Action = "DrainForUpdate"
	// SetTerminating keeps new pods off the Node, and records on it that its machine is being deleted.
	SetTerminating Action = "SetTerminating"
	// DrainNode continues the drain of the Node, as far as that goes without waiting.
	DrainNode Action = "DrainNode"
	// DeleteNode removes our finalizer from the Node, and the Node.
	DeleteNode Action = "DeleteNode"
	// DeleteMachine deletes the Machine object, because its Node was deleted, or an annotation
	// requests it.
	DeleteMachine Action = "DeleteMachine"
)

// Verdict is a decision.
type Verdict struct {
	Do Action
	// Machine as it should stand, with Rest and Save; nil means as it is.
	Machine *v1alpha1.Machine
	// Wake is when to look again, from now, with Rest; 0 means when something happens.
	Wake time.Duration
	// Events report what has changed, the most important first.
	Events []Event
	// Why the machine is deleted, with DeleteMachine, DeleteVM and DeleteNode.
	Why receipt.Reason
	// RequestSweep reports, with Rest, whether the leader has to be asked, before Machine is written,
	// to search for VMs that are not the machine's.
	RequestSweep bool
	// Waiting is the reason to wait, with Rest, as Waits returns it. It is for traces: the
	// caller of Decide sets it. Decide does where the World does not show what it waits for.
	Waiting string
	// Patch of the Node, with ClaimNode and PatchNode.
	Patch *nodesync.Patch
}

// Next returns the name of the action, and whether the pass rests.
func (v Verdict) Next() (action string, rest bool) { return string(v.Do), v.Do == Rest }

// Waits returns what the machine waits for, with Rest.
func (v Verdict) Waits() string { return v.Waiting }

// Reason returns why, without text of clouds, kubelets and users: the rule of a deletion, or the
// reason of an Event; and a sentence.
func (v Verdict) Reason() (code, why string) {
	why = v.Do.reason()
	if v.Do == Rest && v.Waiting != "" {
		why = "it waits for " + v.Waiting
	}
	switch {
	case v.Why.Rule != "":
		code, why = string(v.Why.Rule), v.Why.Summary()
	case len(v.Events) > 0:
		code, why = v.Events[0].Reason, v.Events[0].Reason
	}
	if v.Machine != nil && v.Machine.Status.CurrentStatus.Phase != "" {
		why += "; phase " + string(v.Machine.Status.CurrentStatus.Phase)
	}
	if v.Do == Rest && v.Wake > 0 {
		why += fmt.Sprintf("; decided again in %s", v.Wake.Round(time.Millisecond))
	}
	return code, why
}

// reason returns what is true whenever an action is decided on.
func (a Action) reason() string {
	switch a {
	case Rest:
		return "there is nothing to do until something happens"
	case Save:
		return "the next action depends on what is written"
	case ReadSecret:
		return "the data of the class' Secrets are not known"
	case ReadConfig:
		return "the user data need the configuration of a MachineConfigPool"
	case AddFinalizers:
		return "the class or a Secret lacks the finalizer"
	case FindVM:
		return "whether the cloud has a VM of the machine is not known"
	case AskCloud:
		return "the Node is unreachable, and the cloud may show why"
	case CheckFields:
		return "whether the driver ignores fields of the class is not known"
	case CreateToken:
		return "the user data need a bootstrap token"
	case ProlongToken:
		return "the bootstrap token expires too early"
	case DropToken:
		return "the bootstrap token is not needed any more"
	case CreateVM:
		return "the cloud has no VM of the machine"
	case InitializeVM:
		return "the VM is not initialized"
	case DeleteVM:
		return "the machine is being deleted"
	case FindNode:
		return "the cache does not prove what the Node is"
	case FindNodeClaims:
		return "another machine may have an older claim to the Node"
	case FindVMClaims:
		return "another machine may have an older claim to the VM"
	case ClaimNode:
		return "the Node is the machine's and not bound to it"
	case PatchNode:
		return "the Node differs from what its machine defines"
	case DrainPreserved:
		return "the machine has failed and is preserved"
	case DrainForUpdate:
		return "the Node is selected for an update in place"
	case SetTerminating:
		return "the machine is being deleted, and its Node accepts pods"
	case DrainNode:
		return "the Node may have pods"
	case DeleteNode:
		return "the VM is gone"
	case DeleteMachine:
		return "its Node was deleted, or an annotation requests it"
	}
	return ""
}

// Event is something that a user should see on the machine.
type Event struct {
	// Reason is one of v1alpha1.EventReasons, which also has whether something is wrong.
	Reason  string
	Message string
}

// with returns the verdict with one more Event.
func (v Verdict) with(reason, message string) Verdict {
	v.Events = append(slices.Clone(v.Events), Event{Reason: reason, Message: message})
	return v
}

// rest ends the pass with nothing to write.
func rest(wake time.Duration) Verdict { return Verdict{Do: Rest, Wake: wake} }

// do names an action.
func do(action Action) Verdict { return Verdict{Do: action} }

// explained returns a verdict on a machine that is being deleted with the reason for what it
// deletes.
func explained(w World, v Verdict) Verdict {
	if v.Do == DeleteVM || v.Do == DeleteNode {
		v.Why = whyDeleted(w)
	}
	return v
}

// whyDeleted returns why the machine is being deleted: as it was recorded when its deletion began,
// or as it can be seen.
func whyDeleted(w World) receipt.Reason {
	if why, recorded := recordedReason(w.Machine); recorded {
		return why
	}
	return whySeen(w)
}

// whySeen returns why the machine is being deleted as far as the facts show. Before anything is
// deleted of the machine, its set still has the reason for which the set has deleted it.
func whySeen(w World) receipt.Reason {
	if w.Decided.IsValid() {
		return w.Decided
	}
	if isToBeDeleted(w) {
		return whyTriggered(w)
	}
	if node, _ := ownNode(w); node != nil && node.DeletionTimestamp != nil {
		return whyNodeDeleted(node)
	}
	return receipt.Because(receipt.MachineDeleted, fmt.Sprintf("at %s, by a client; the fleet has recorded no decision",
		w.Machine.DeletionTimestamp.UTC().Format(time.RFC3339)))
}

// whyTriggered returns the reason for a machine whose deletion an annotation requests.
func whyTriggered(w World) receipt.Reason {
	on := "the Machine"
	if w.Machine.Annotations[v1alpha1.AnnotationTriggerDeletion] != "true" {
		on = "Node " + NodeName(w.Machine)
	}
	return receipt.Because(receipt.DeletionTriggered, fmt.Sprintf("annotation %s on %s", v1alpha1.AnnotationTriggerDeletion, on))
}

// whyNodeDeleted returns the reason for a machine whose Node is being deleted.
func whyNodeDeleted(node *corev1.Node) receipt.Reason {
	return receipt.Because(receipt.NodeDeleted,
		fmt.Sprintf("Node %s was deleted at %s by another client", node.Name, node.DeletionTimestamp.UTC().Format(time.RFC3339)))
}

// recordReason records on a machine, which is about to be Terminating, why it is deleted. It is a
// condition, because the status is written at that time anyway, and replaces what a Node or a
// client may have left under that type.
func recordReason(w World, m *v1alpha1.Machine) {
	why := whySeen(w)
	m.Status.Conditions = append(slices.DeleteFunc(slices.Clone(m.Status.Conditions), isReason), corev1.NodeCondition{
		Type: v1alpha1.MachineDeleting, Status: corev1.ConditionTrue, Reason: string(why.Rule), Message: why.Evidence,
		LastHeartbeatTime: metav1.NewTime(w.Now), LastTransitionTime: metav1.NewTime(w.Now),
	})
}

// recordedReason returns the reason that is recorded on a machine; recorded is false before its
// deletion has begun, and for one whose deletion another controller has begun.
func recordedReason(m *v1alpha1.Machine) (why receipt.Reason, recorded bool) {
	i := slices.IndexFunc(m.Status.Conditions, isReason)
	if i < 0 || m.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating {
		return receipt.Reason{}, false
	}
	why = receipt.Because(receipt.Rule(m.Status.Conditions[i].Reason), m.Status.Conditions[i].Message)
	return why, why.IsValid()
}

func isReason(c corev1.NodeCondition) bool { return c.Type == v1alpha1.MachineDeleting }

// Pauses between calls that ask whether a VM has ended: a quarter of the time that it has taken so
// far, between these two. So one that ends at once is seen at once, one that takes a minute is
// asked for some twenty times, and none is seen more than 10 s late.
const (
	shortestEndingPause = 250 * time.Millisecond
	longestEndingPause  = 10 * time.Second
)

// askAgain is when the cloud is asked again about a VM that is ending.
func (vm VMFact) askAgain() time.Time {
	pause := vm.AskedAt.Sub(vm.EndingSince) / 4
	return vm.AskedAt.Add(min(max(pause, shortestEndingPause), longestEndingPause))
}

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
			Type:        v1alpha1.MachineOperationUpdate,
			State:       v1alpha1.MachineStateProcessing,
			ErrorCode:   w.PassError.Code.String(),
			Description: w.PassError.Message,
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
