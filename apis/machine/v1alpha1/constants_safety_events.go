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
			"A VM, network interface, disk or address that belongs to no Machine was deleted at the cloud. The message has its ID, the name and UID of the Machine that it was made for, and why it was deleted.",
			"",
		},
		{
			EventOrphansHeld, true, class,
			"Resources at the cloud belong to no Machine, and are not deleted: they are more than `--safety-max-orphan-deletions` or the deletion budget of the Namespace allows in an hour, the Node of one of them is Ready, deletions are held, or the sweep is a dry run. It is emitted in each sweep.",
			"Check the resources that the message names. To delete exactly these, annotate the MachineClass with `fleet.machine.sapcloud.io/delete-orphans=<the value in the message>`.",
		},
	}
}
