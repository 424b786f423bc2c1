package v1alpha1

// Reasons of Events on Machines. Machine Controller Manager has no Events on Machines; these are ours.
const (
	// EventCreateFailed says why a machine has no VM, or no Node of its own. It comes once for each error code, however often the
	// creation is tried.
	EventCreateFailed = "CreateFailed"
	// EventJoined says that the Node has joined and is healthy.
	EventJoined = "Joined"
	// EventJoinTimedOut says that no healthy Node appeared within the creation timeout.
	EventJoinTimedOut = "JoinTimedOut"
	// EventNodeUnhealthy says that the Node has become unhealthy, or is missing.
	EventNodeUnhealthy = "NodeUnhealthy"
	// EventNodeHealthy says that the Node is healthy again.
	EventNodeHealthy = "NodeHealthy"
	// EventNodeDeleted says that the machine is deleted because somebody deleted its Node.
	EventNodeDeleted = "NodeDeleted"
	// EventDeleteFailed says why the VM could not be removed. It comes once for each error code, however often the
	// deletion is tried.
	EventDeleteFailed = "DeleteFailed"
)
