package v1alpha1

// Annotations by which people stop deletions. MCM does not have them.
const (
	// AnnotationHoldDeletions on a Namespace, or on the fleet's leader Lease for all namespaces, holds deletions of machines: the
	// fleet deletes none that may run pods, except those that a client has deleted. Its value is the reason, for people to read;
	// "" and "false" hold nothing.
	AnnotationHoldDeletions = FleetDomain + "hold-deletions"
)

// The conditions of roots whose machines wait to be deleted.
const (
	// MachineDeploymentDeletionsHeld is True while machines of the deployment that should be deleted or replaced are not, because
	// deletions are held. Else it is not there.
	MachineDeploymentDeletionsHeld MachineDeploymentConditionType = "DeletionsHeld"
	// MachineSetDeletionsHeld is what MachineDeploymentDeletionsHeld is, on a set without a controller.
	MachineSetDeletionsHeld MachineSetConditionType = "DeletionsHeld"
)

// Reasons of the DeletionsHeld conditions.
const (
	// ReasonHoldAnnotation means that a Namespace or the leader Lease has AnnotationHoldDeletions.
	ReasonHoldAnnotation = "HoldAnnotation"
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
			"Machines that should be deleted or replaced are not: a person holds deletions by an annotation. The message has the annotation and its reason. It is on a MachineSet only if the MachineSet has no controller.",
			"Remove the annotation `fleet.machine.sapcloud.io/hold-deletions` from the Namespace, or from the leader Lease, when its reason is gone.",
		},
		{
			EventDeletionsReleased, false, roots,
			"No machine waits any more because deletions are held.",
			"",
		},
	}
}
