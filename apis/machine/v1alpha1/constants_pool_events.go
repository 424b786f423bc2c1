package v1alpha1

// Reasons of Events on MachineConfigPools about the updates of their Nodes, in the target cluster.
const (
	EventNodesAssigned    = "NodesAssigned"
	EventPoolUpdated      = "PoolUpdated"
	EventNodesDegraded    = "NodesDegraded"
	EventNodesShared      = "NodesShared"
	EventNodeDrainBlocked = "NodeDrainBlocked"
	EventNodeDrainForced  = "NodeDrainForced"
)

func poolEvents() []EventReason {
	pool := []string{"MachineConfigPool"}
	return []EventReason{
		{
			EventNodesAssigned, false, pool,
			"Nodes were assigned the target of the pool, and the daemons on them begin their update. The message says how many, " +
				"and names up to five.",
			"",
		},
		{
			EventPoolUpdated, false, pool,
			"All Nodes of the pool have the target, and are available to pods.",
			"",
		},
		{
			EventNodesDegraded, true, pool,
			"The daemon of a Node reports a failure. It is emitted when the first Node of the pool does. The message names Nodes and causes.",
			"See [a Node is degraded](operations/machine-config.md#a-node-is-degraded).",
		},
		{
			EventNodesShared, true, pool,
			"Another pool has the same right to a Node, which this pool does not update.",
			"Change a nodeSelector, a priority or a machineRef; see [which pool a Node belongs " +
				"to](operations/machine-config.md#which-pool-a-node-belongs-to).",
		},
		{
			EventNodeDrainBlocked, true, pool,
			"The drain of a Node for a configuration cannot make progress without intervention: " +
				"a PodDisruptionBudget allows no eviction although all pods are healthy or because the pod has no controller, " +
				"or what the drain depends on cannot be watched. The message names the pods and what holds them.",
			"Change what the PodDisruptionBudget allows; see [a drain is blocked](operations/machine-config.md#a-drain-is-blocked).",
		},
		{
			EventNodeDrainForced, true, pool,
			"The drain of a Node for a configuration was ended by force: the drain timeout is over, or the Node has been unhealthy for 5 min. " +
				"Its update continues. The message has the cause, and names up to three pods that were deleted without grace.",
			"Look at what did not leave in time, or raise the drain timeout.",
		},
	}
}
