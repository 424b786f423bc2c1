package v1alpha1

import "slices"

// EventReason describes the Events of one reason. docs/events.md is generated from it.
//
// +kubebuilder:object:generate=false
type EventReason struct {
	// Reason in one word, unique among all.
	Reason string
	// Warning is true when something is wrong.
	Warning bool
	// On lists the kinds of the objects that the Events are about.
	On []string
	// When it is emitted, and how often, in sentences.
	When string
	// Do describes the user's next step, in sentences; "" means nothing.
	Do string
}

// Names under which Events are recorded.
const (
	// EventSourceMachineDeployment records what happens to MachineDeployments, and that an object is
	// not reconciled.
	EventSourceMachineDeployment = "machinedeployment-controller"
	// EventSourceMachineSet records what happens to MachineSets.
	EventSourceMachineSet = "machineset-controller"
	// EventSourceMachine records what happens to Machines and Nodes.
	EventSourceMachine = "machine-controller"
	// EventSourceSafety records what the safety controller does.
	EventSourceSafety = "machine-controller-manager"
	// EventSourceMachineConfig records what happens to the kinds of machine configuration.
	EventSourceMachineConfig = "machine-config-controller"
)

// EventReasons returns all reasons of Events, in the order of the docs. A new one is a constant and
// its row in one of the tables that this is built from; all else that needs the reasons uses this
// function, or is checked by a test.
func EventReasons() []EventReason {
	return slices.Concat(creationEvents(), machineEvents(), deletionEvents(), preservationEvents(), fleetEvents(), inPlaceEvents(),
		drainEvents(), machineSetEvents(), machineDeploymentEvents(), rollbackEvents(), invalidEvents(),
		replacementEvents(), holdEvents(), replicaEvents(), classEvents(), orphanEvents(), configEvents(), poolEvents())
}

// StepEventReasons returns the reasons of Events that each step of a rollout has. All of them are
// normal, and what they report is in the status and in the Events of machines, too.
func StepEventReasons() []string {
	return []string{EventScalingMachineSet, EventSuccessfulCreate, EventSuccessfulDelete}
}

// FindEventReason returns the row of a reason; ok reports whether the reason is one of the fleet's.
func FindEventReason(reason string) (found EventReason, ok bool) {
	all := EventReasons()
	i := slices.IndexFunc(all, func(e EventReason) bool { return e.Reason == reason })
	if i < 0 {
		return EventReason{}, false
	}
	return all[i], true
}
