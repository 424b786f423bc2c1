package v1alpha1

// Reasons of Events about orphans. What each means is in its row below.
const (
	EventOrphanDeleted = "OrphanDeleted"
	EventOrphansHeld   = "OrphansHeld"
)

func orphanEvents() []EventReason {
	class := []string{"MachineClass"}
	return []EventReason{
		{
			EventOrphanDeleted, false, class,
			"A VM, network interface, disk or address that belongs to no Machine was deleted at the cloud. The message has its ID, " +
				"the name and UID of the Machine that it was created for, and why it was deleted.",
			"",
		},
		{
			EventOrphansHeld, true, class,
			"Resources at the cloud belong to no Machine, and are not deleted: they are more than `--safety-max-orphan-deletions` or the deletion " +
				"budget of the Namespace allows in an hour, the Node of a VM is Ready or not known to the driver, " +
				"a person holds deletions by the annotation `fleet.machine.sapcloud.io/hold-deletions`, or the sweep is a dry run. " +
				"The message has the reason. It is emitted in each sweep.",
			"If deletions are held, or in a dry run, end that first: nothing is deleted before, also with an approval. " +
				"Otherwise check the resources that the message names. To delete exactly these, " +
				"annotate the MachineClass that the message names with `fleet.machine.sapcloud.io/delete-orphans=<the value in the message>`: " +
				"one MachineClass of an account has its Events and approvals.",
		},
	}
}
