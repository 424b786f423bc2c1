package v1alpha1

import "slices"

// EventReason is what there is to know of the Events of one reason. docs/events.md is made from it.
//
// +kubebuilder:object:generate=false
type EventReason struct {
	// Reason in one word, unique among all.
	Reason string
	// Warning is true when something is wrong.
	Warning bool
	// On are the kinds of the objects that the Events are about.
	On []string
	// When it comes, and how often, in sentences.
	When string
	// Do is what to do about it, in sentences; "" means nothing.
	Do string
}

// Names under which Events are recorded.
const (
	// EventSourceMachineDeployment records what happens to MachineDeployments, and that nobody looks after an object.
	EventSourceMachineDeployment = "machinedeployment-controller"
	// EventSourceMachineSet records what happens to MachineSets.
	EventSourceMachineSet = "machineset-controller"
	// EventSourceMachine records what happens to Machines and Nodes.
	EventSourceMachine = "machine-controller"
	// EventSourceSafety records what the safety controller does.
	EventSourceSafety = "machine-controller-manager"
)

// EventReasons returns all reasons of Events, in the order in which people read of them. A new one is a constant and its row
// in one of the tables that this is made of; what else needs it is made from here, or asks for it in a test.
func EventReasons() []EventReason {
	return slices.Concat(machineEvents(), preservationEvents(), fleetEvents(), inPlaceEvents(), drainEvents(), machineSetEvents(), machineDeploymentEvents(), invalidEvents(),
		replacementEvents(), replicaEvents())
}

// FindEventReason returns what there is to know of a reason; ok is false when it is none of ours.
func FindEventReason(reason string) (found EventReason, ok bool) {
	all := EventReasons()
	i := slices.IndexFunc(all, func(e EventReason) bool { return e.Reason == reason })
	if i < 0 {
		return EventReason{}, false
	}
	return all[i], true
}
