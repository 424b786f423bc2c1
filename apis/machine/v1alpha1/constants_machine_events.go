package v1alpha1

// Reasons of Events on Machines. Machine Controller Manager emits no Events on Machines; these are
// the fleet's. What each means is in its row below.
const (
	EventCreated           = "Created"
	EventCreateFailed      = "CreateFailed"
	EventCreateTimedOut    = "CreateTimedOut"
	EventJoined            = "Joined"
	EventJoinTimedOut      = "JoinTimedOut"
	EventNodeUnhealthy     = "NodeUnhealthy"
	EventNodeHealthy       = "NodeHealthy"
	EventHealthTimedOut    = "HealthTimedOut"
	EventNodeDeleted       = "NodeDeleted"
	EventDeleting          = "Deleting"
	EventDeleted           = "Deleted"
	EventDeleteFailed      = "DeleteFailed"
	EventDrainBlocked      = "DrainBlocked"
	EventDrained           = "Drained"
	EventDrainForced       = "DrainForced"
	EventEvictionTimedOut  = "EvictionTimedOut"
	EventDeletionTriggered = "DeletionTriggered"
	EventNodeRefused       = "NodeRefused"
	EventNotOwned          = "NotOwned"
	EventPreserved         = "Preserved"
	EventPreservationEnded = "PreservationEnded"
	EventPreserveUnknown   = "PreserveUnknown"
	EventInPlaceUpdating   = "InPlaceUpdating"
	EventInPlaceUpdated    = "InPlaceUpdated"
	EventInPlaceFailed     = "InPlaceUpdateFailed"
	EventSetAside          = "SetAside"
	EventSlotUnowned       = "SlotUnowned"
	EventNotAlone          = "NotAlone"
	EventNotSelected       = "NotSelected"
	EventNotLabeled        = "NotLabeled"
	EventUndecodable       = "Undecodable"
)

func creationEvents() []EventReason {
	machine := []string{"Machine"}
	return []EventReason{
		{
			EventCreated, false, machine,
			"The VM exists, is set up and is recorded on the machine, which waits for its Node. The message names both. " +
				"It comes again if a client removes what was recorded.",
			"",
		},
		{
			EventCreateFailed, true, machine,
			"The machine has no VM, or a VM whose Node cannot join. It is emitted once for each error code, regardless of the number of attempts.",
			"The message has the cause, and so has `status.lastOperation`: see " +
				"[CrashLoopBackOff](troubleshooting.md#a-machine-is-in-crashloopbackoff).",
		},
		{
			EventCreateTimedOut, true, machine,
			"The creation timeout is over, and the machine has no VM, or one that cannot join. It fails, and its MachineSet replaces it. " +
				"The message is the last cause.",
			"Remove the cause: the next machine may fail for it, too.",
		},
		{
			EventJoined, false, machine,
			"The Node has joined and is healthy for the first time.",
			"",
		},
		{
			EventJoinTimedOut, true, machine,
			"No healthy Node appeared within the creation timeout. The machine fails, and its MachineSet replaces it.",
			"See [Pending](troubleshooting.md#a-machine-stays-in-pending).",
		},
	}
}

func machineEvents() []EventReason {
	machine := []string{"Machine"}
	return []EventReason{
		{
			EventNodeUnhealthy, true, machine,
			"The Node of a machine that was running has become unhealthy, or is missing. The message names the condition.",
			"Look at the Node, and at its VM.",
		},
		{
			EventNodeHealthy, false, machine,
			"The Node is healthy again.",
			"",
		},
		{
			EventNodeDeleted, false, machine,
			"Another client deleted the Node, and so the machine is deleted, too.",
			"To take a machine out of service, delete the Machine instead.",
		},
		{
			EventDeleted, false, machine,
			"The machine is deleted, and its VM and its Node with it. The message names the VM, " +
				"and what was left alone because it is not the machine's.",
			"",
		},
		{
			EventDeleteFailed, true, machine,
			"The VM of a machine that is being deleted could not be removed. It is emitted once for each error code, " +
				"regardless of the number of attempts.",
			"The message has the cause: see [Terminating](troubleshooting.md#a-machine-stays-in-terminating).",
		},
		{
			EventDeletionTriggered, false, machine,
			"The machine is deleted because it, or its Node, has the annotation `node.machine.sapcloud.io/trigger-deletion-by-mcm=true`.",
			"",
		},
		{
			EventNotOwned, true, machine,
			"The machine is being deleted, and names a Node or a VM that is not its own: the Node is bound to another machine or to none, " +
				"or the VM does not have the machine's UID. Neither is changed.",
			"If the VM or the Node belongs to no machine, delete it by hand; see [ownership of Nodes and VMs](architecture/ownership.md).",
		},
		{
			EventNodeRefused, true, machine,
			"The API server rejected what `nodeTemplate` and the class' `virtualCapacity` set on the Node, and so none of it is applied. " +
				"It is emitted once for each error of the API server.",
			"The message has the error: see [Nodes](troubleshooting.md#a-node-does-not-have-the-metadata-of-its-machine).",
		},
		{
			EventSetAside, true, machine,
			"Processing the machine has panicked, which is a defect of the fleet or of its driver. The machine is left as it is, " +
				"for a minute at first and up to an hour when it happens again and again, also after a hand-over. " +
				"It is emitted once for each series of panics.",
			"Report it with the log, which has the stack. A change of the machine's spec, or its deletion, ends the wait; " +
				"see [a machine that is set aside](troubleshooting.md#a-machine-is-set-aside).",
		},
	}
}

func preservationEvents() []EventReason {
	machine := []string{"Machine"}
	return []EventReason{
		{
			EventPreserved, false, machine,
			"The machine is preserved from now on; the message says until when.",
			"Look at it; see [keeping a machine](operations/preserve.md).",
		},
		{
			EventPreservationEnded, false, machine,
			"The machine is not preserved any more: its time is over, it has recovered, or the request for it was removed. " +
				"The message says which. If it has failed, its MachineSet replaces it.",
			"",
		},
		{
			EventPreserveUnknown, true, machine,
			"The annotation `node.machine.sapcloud.io/preserve`, on the machine or on its Node, has an unknown value. " +
				"It is emitted once for each value.",
			"Correct it; see [keeping a machine](operations/preserve.md).",
		},
	}
}

// fleetEvents are about objects that are not reconciled.
func fleetEvents() []EventReason {
	roots := []string{"MachineDeployment", "MachineSet", "Machine"}
	return []EventReason{
		{
			EventNotAlone, true, roots,
			"Another client holds the Leases of the namespace, so that it is not served. It is emitted once for each holder.",
			"The message names the holder: stop it, or keep the fleet out of the namespace; see [taking over](operations/take-over.md).",
		},
		{
			EventNotSelected, true, roots,
			"The labels of the namespace do not select it for the fleet, and no manager has held its Leases for 15 s, so that no fleet serves it.",
			"Label the namespace for one of the fleets; see [several fleets](operations/landscapes.md#several-fleets).",
		},
		{
			EventSlotUnowned, true, roots,
			"No replica has held the object's slot for 30 s, so the object and those below it are not reconciled. " +
				"It is emitted once for each time that the slot loses its holder.",
			"See [a slot has no holder](operations/fleet.md#a-slot-has-no-holder).",
		},
		{
			EventNotLabeled, true, roots,
			"The API server, a webhook or a policy refuses the slot label of the object or of one below it, so that none of them is reconciled; " +
				"without that of a Node only its machine has no Node. It is emitted once for each reason.",
			"The message has the answer of the API server. Let the fleet's users write labels of the object, or delete it.",
		},
		{
			EventUndecodable, true, append([]string{"MachineClass"}, roots...),
			"A field of the object, or of a MachineSet of the MachineDeployment, has a value that the fleet cannot decode, " +
				"so the object is not reconciled. It is emitted once for each version of the object.",
			"The message names the field: correct it; see [an object that cannot be decoded](troubleshooting.md#an-object-cannot-be-decoded).",
		},
	}
}

func inPlaceEvents() []EventReason {
	machine := []string{"Machine"}
	return []EventReason{
		{
			EventInPlaceUpdating, false, machine,
			"The Node was selected to be updated in place and is drained: the agent on the Node may begin the update. " +
				"The message has the result of the drain.",
			"",
		},
		{
			EventInPlaceUpdated, false, machine,
			"The Node was updated in place. The machine runs again when the Node is healthy.",
			"",
		},
		{
			EventInPlaceFailed, true, machine,
			"The Node could not be updated in place, or not within the timeout. If that is not resolved within the health timeout, " +
				"the machine fails and is replaced, as far as its MachineDeployment allows.",
			"The message has the cause: see [updates in place](operations/inplace.md#when-an-update-fails).",
		},
	}
}

func deletionEvents() []EventReason {
	return []EventReason{
		{
			EventDeleting, false,
			[]string{"Machine", "MachineSet", "MachineDeployment"},
			"The fleet has started to delete the Machine, its VM or its Node. The message says which of them, " +
				"by which rule and on which evidence, and which replica did it under which slot and epoch. " +
				"The root has it only for what was not deleted by a MachineSet; see `SuccessfulDelete`.",
			"",
		},
	}
}

func drainEvents() []EventReason {
	machine := []string{"Machine"}
	return []EventReason{
		{
			EventDrainBlocked, true, machine,
			"The drain of the Node cannot make progress without intervention: a PodDisruptionBudget allows no eviction although all pods are " +
				"healthy or because the pod has no controller, or the target cluster does not answer or does not show what the drain depends on. " +
				"At the drain timeout it is ended by force, but not while the API server of the target cluster is away.",
			"The message has the cause: see [Terminating](troubleshooting.md#a-machine-stays-in-terminating).",
		},
		{
			EventDrained, false, machine,
			"The Node had pods or volumes that had to leave, and they have. The VM is deleted.",
			"",
		},
		{
			EventEvictionTimedOut, true,
			[]string{"Machine", "MachineConfigPool"},
			"Pods of a Node that is drained were deleted without grace, regardless of what their PodDisruptionBudgets allow, " +
				"because their evictions had been rejected for the time of `maxEvictRetries`. The drain goes on. " +
				"The message names the Node and up to three pods.",
			"Change what the PodDisruptionBudget allows, or raise `spec.maxEvictRetries`.",
		},
		{
			EventDrainForced, true, machine,
			"The drain of the Node was ended by force, and the VM is deleted. The message has the cause: the drain timeout is over, " +
				"the Node has been unhealthy for 5 min, the machine has the label `force-deletion`, or volumes were not detached. " +
				"It names up to three pods that were deleted without grace.",
			"Look at what did not leave in time, or raise `spec.drainTimeout`.",
		},
	}
}
