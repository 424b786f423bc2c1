package v1alpha1

// Annotations by which people stop deletions. MCM does not have them.
const (
	// AnnotationHoldDeletions holds deletions of machines, in a Namespace or in all: the fleet deletes
	// none that may run pods, except those that a client has deleted. Its value is the reason, for
	// people to read; "" and "false" hold nothing.
	//
	// On: Namespaces, Lease of the leader. By: user. Value: reason for people. See:
	// operations/safety.md#hold-deletions.
	AnnotationHoldDeletions = FleetDomain + "hold-deletions"
	// AnnotationMaxDeletions is the deletion budget of the Namespace: how many machines of it are
	// replaced for their health, and orphans of it deleted, within an hour. "0" means any number.
	// Without it, or with an invalid value, the fleet's setting applies.
	//
	// On: Namespaces. By: user. Value: number. See: operations/safety.md#deletion-budgets.
	AnnotationMaxDeletions = FleetDomain + "max-deletions-per-hour"
	// AnnotationDeletions has what was reserved of the deletion budget within the last hour.
	//
	// On: Lease `machine-controller-fleet-deletions`. By: fleet. Value: JSON. See:
	// operations/safety.md#deletion-budgets.
	AnnotationDeletions = FleetDomain + "deletions"
)

// LeaseDeletions is the Lease with AnnotationDeletions. It has no holder, and is created when a
// deletion budget is first used.
//
// On: namespaces with deletions. By: fleet. See: operations/safety.md#deletion-budgets.
const LeaseDeletions = "machine-controller-fleet-deletions"

// Condition types of a MachineDeployment whose machines wait to be deleted.
const (
	// MachineDeploymentDeletionsHeld is True while machines of the deployment that should be deleted
	// or replaced are not, because deletions are held or the deletion budget is exhausted. Else it is
	// not there.
	MachineDeploymentDeletionsHeld MachineDeploymentConditionType = "DeletionsHeld"
)

// Condition types of a MachineSet whose machines wait to be deleted.
const (
	// MachineSetDeletionsHeld has the meaning of MachineDeploymentDeletionsHeld, on a set without a
	// controller. One with a controller has it while machines that it should delete are not, because
	// deletions are held.
	MachineSetDeletionsHeld MachineSetConditionType = "DeletionsHeld"
)

// Reasons of the DeletionsHeld conditions.
const (
	// ReasonHoldAnnotation means that a Namespace or the leader Lease has AnnotationHoldDeletions. It
	// is a reason of MachineDeploymentRolloutStalled, too.
	ReasonHoldAnnotation = "HoldAnnotation"
	// ReasonDeletionBudget means that the deletion budget of the namespace is exhausted:
	// AnnotationMaxDeletions, or the fleet's setting.
	ReasonDeletionBudget = "DeletionBudget"
)

// Reasons of Events on roots whose machines wait to be deleted.
const (
	EventDeletionsHeld     = "DeletionsHeld"
	EventDeletionsReleased = "DeletionsReleased"
)

func holdEvents() []EventReason {
	roots := []string{"MachineDeployment", "MachineSet"}
	return []EventReason{
		{
			EventDeletionsHeld, true, roots,
			"Machines that should be deleted or replaced are not: a person holds deletions by an annotation, " +
				"or the deletion budget of the Namespace is exhausted. The message has the annotation and its reason, or the limit. " +
				"It is on a MachineSet only if the MachineSet has no controller.",
			"Remove the annotation `fleet.machine.sapcloud.io/hold-deletions` from the Namespace, or from the leader Lease, " +
				"when its reason is gone. If the deletion budget is exhausted, find out why so many machines are unhealthy; " +
				"to have more replaced within the hour, raise the annotation `fleet.machine.sapcloud.io/max-deletions-per-hour` of the Namespace.",
		},
		{
			EventDeletionsReleased, false, roots,
			"No machine waits any more for the end of a hold of deletions, or for the deletion budget.",
			"",
		},
	}
}
