package lifecycle

import (
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
)

// Action is one thing to do.
type Action string

// The actions.
const (
	// Rest ends the pass: the machine is written as Verdict.Machine says.
	Rest Action = "Rest"
	// Save writes the machine as Verdict.Machine says, because what follows needs it written.
	Save Action = "Save"
	// ReadSecret reads the class' secrets.
	ReadSecret Action = "ReadSecret"
	// AddFinalizers puts our finalizers on class and secrets.
	AddFinalizers Action = "Hold"
	// FindVM asks the cloud for the machine's VM.
	FindVM Action = "FindVM"
	// MakeToken makes the machine's bootstrap token, or reads the one that it has.
	MakeToken Action = "MakeToken"
	// ProlongToken makes the machine's bootstrap token, if there is one, valid for longer.
	ProlongToken Action = "ProlongToken"
	// DropToken removes the machine's bootstrap token.
	DropToken Action = "DropToken"
	// CreateVM has the cloud make the VM.
	CreateVM Action = "CreateVM"
	// InitializeVM has the cloud set up a VM that was made.
	InitializeVM Action = "InitializeVM"
	// DeleteVM has the cloud remove the VM.
	DeleteVM Action = "DeleteVM"
	// FindNode reads the Node from the API server, past all caches.
	FindNode Action = "FindNode"
	// FindNodeRivals lists, past all caches, the other machines that name the Node, and FindVMRivals those that name the VM.
	FindNodeRivals Action = "FindNodeRivals"
	FindVMRivals   Action = "FindVMRivals"
	// ClaimNode binds the Node to the machine, puts our finalizer, the machine's name and its slot on it, and whatever else it is to carry, as
	// Verdict.Patch says.
	ClaimNode Action = "ClaimNode"
	// PatchNode brings a Node that is claimed in step with its machine, as Verdict.Patch says.
	PatchNode Action = "PatchNode"
	// DrainPreserved drains the Node of a failed machine that is preserved, as far as that goes without waiting, and says
	// in World.PreservedDrain how far it has come.
	DrainPreserved Action = "DrainPreserved"
	// DrainForUpdate drains the Node that is to be updated in place, as far as that goes without waiting, and says in
	// World.UpdateDrain how far it has come.
	DrainForUpdate Action = "DrainForUpdate"
	// MarkNode keeps new pods off the Node, and says on it that its machine is being deleted.
	MarkNode Action = "MarkNode"
	// DrainNode goes on with the drain of the Node, as far as it goes now.
	DrainNode Action = "DrainNode"
	// DeleteNode removes our finalizer from the Node, and the Node.
	DeleteNode Action = "DeleteNode"
	// DeleteMachine deletes the Machine object, because its Node was deleted, or somebody asks for it.
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
	// Patch of the Node, with ClaimNode and PatchNode.
	Patch *nodesync.Patch
}

// Next returns the name of the action, and whether the pass rests.
func (v Verdict) Next() (action string, rest bool) { return string(v.Do), v.Do == Rest }

// Event is something that a user should see on the machine.
type Event struct {
	// Reason is one of v1alpha1.EventReasons, which also says whether something is wrong.
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
