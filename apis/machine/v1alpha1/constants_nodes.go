package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Taints on Nodes.
const (
	// TaintPreferNoSchedule is on Nodes of old MachineSets during a rollout, so that pods are
	// scheduled to new ones.
	//
	// On: Nodes. By: fleet. Value: `True`, effect PreferNoSchedule. See:
	// operations/rollouts.md#taints-and-annotations-of-nodes-during-a-rollout.
	TaintPreferNoSchedule = "deployment.machine.sapcloud.io/prefer-no-schedule"
	// TaintCriticalComponentsNotReady is on a Node until another controller has found it fit for pods.
	// A new machine does not become Running before the taint is removed.
	//
	// On: Nodes. By: fleet, user; another controller removes it. Value: effect NoSchedule. See:
	// operations/inplace.md#outside-gardener.
	TaintCriticalComponentsNotReady = "node.gardener.cloud/critical-components-not-ready"
	// TaintPreserved is on the Node of a failed machine that is preserved. It is used rather than a
	// cordon, so that a user's cordon stays what it is.
	//
	// On: Nodes. By: fleet. Value: effect NoSchedule. See: operations/preserve.md.
	TaintPreserved = "node.machine.sapcloud.io/preserved"
)

// Condition types of a Node, which the fleet writes.
const (
	// NodeTerminating is True while the Node's machine is being deleted.
	NodeTerminating corev1.NodeConditionType = "Terminating"
	// NodeInPlaceUpdate is True during an update in place; its reason is the stage.
	NodeInPlaceUpdate corev1.NodeConditionType = "InPlaceUpdate"
	// NodePreserved reports whether the Node's machine is preserved.
	NodePreserved corev1.NodeConditionType = "Preserved"
)

// Condition types of a Machine, in addition to those of its Node.
const (
	// MachineDeleting is on a Machine that is being deleted. Its reason is the rule by which it is
	// deleted and its message the evidence, as in the deletion log.
	MachineDeleting corev1.NodeConditionType = "Deleting"
)

// Reasons of NodeTerminating.
const (
	// NodeReasonUnhealthy means that the machine is deleted because it failed.
	NodeReasonUnhealthy = "Unhealthy"
	// NodeReasonScaleDown means that the machine is deleted because it is no longer needed.
	NodeReasonScaleDown = "ScaleDown"
)

// Reasons of NodeInPlaceUpdate, in the order in which they occur.
const (
	// NodeReasonCandidateForUpdate means that the Node is not selected yet.
	NodeReasonCandidateForUpdate = "CandidateForUpdate"
	// NodeReasonSelectedForUpdate means that the Node is drained.
	NodeReasonSelectedForUpdate = "SelectedForUpdate"
	// NodeReasonDrainSuccessful means that the Node is drained and this is not yet recorded on its
	// machine.
	NodeReasonDrainSuccessful = "DrainSuccessful"
	// NodeReasonReadyForUpdate means that the agent on the Node may begin the update.
	NodeReasonReadyForUpdate = "ReadyForUpdate"
	// NodeReasonUpdateSuccessful means that the update succeeded.
	NodeReasonUpdateSuccessful = "UpdateSuccessful"
	// NodeReasonUpdateFailed means that the update failed.
	NodeReasonUpdateFailed = "UpdateFailed"
)

// Reasons of NodePreserved. They are sentences because MCM's are.
const (
	// NodeReasonPreservedByController means that the MachineSet chose to preserve the machine.
	NodeReasonPreservedByController = "Preserved by MCM."
	// NodeReasonPreservedByUser means that a user asked to preserve the machine.
	NodeReasonPreservedByUser = "Preserved by user."
	// NodeReasonPreservationStopped means that the machine is no longer preserved.
	NodeReasonPreservationStopped = "Preservation stopped."
)

// How the message of NodePreserved begins. The end of the preservation follows.
const (
	// PreservedNodeDrained means that the drain succeeded.
	PreservedNodeDrained = "Preserved node drained successfully."
	// PreservedNodeForced means that all pods have left the Node, some of them by force. MCM reports
	// here that the drain succeeded.
	PreservedNodeForced = "Preserved node was drained by force."
	// PreservedNodeNotDrained means that the drain failed.
	PreservedNodeNotDrained = "Preserved node could not be drained."
)
