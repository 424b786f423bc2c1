package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Taints on Nodes.
const (
	// TaintPreferNoSchedule, with value "True" and effect PreferNoSchedule, is on Nodes of old MachineSets during a rollout,
	// so that pods move to new ones.
	TaintPreferNoSchedule = "deployment.machine.sapcloud.io/prefer-no-schedule"
	// TaintCriticalComponentsNotReady, with effect NoSchedule, is on a Node until somebody else has found it fit for pods.
	// A new machine does not become Running before it is gone.
	TaintCriticalComponentsNotReady = "node.gardener.cloud/critical-components-not-ready"
	// TaintPreserved, with effect NoSchedule, is on the Node of a failed machine that is preserved. It is used rather than
	// a cordon, so that a user's cordon stays what it is.
	TaintPreserved = "node.machine.sapcloud.io/preserved"
)

// Types of the Node conditions that the controller writes.
const (
	// NodeTerminating is True while the Node's machine is being deleted.
	NodeTerminating corev1.NodeConditionType = "Terminating"
	// NodeInPlaceUpdate is True during an update in place; its reason says how far it is.
	NodeInPlaceUpdate corev1.NodeConditionType = "InPlaceUpdate"
	// NodePreserved says whether the Node's machine is preserved.
	NodePreserved corev1.NodeConditionType = "Preserved"
)

// Reasons of NodeTerminating.
const (
	// NodeReasonUnhealthy means that the machine is deleted because it failed.
	NodeReasonUnhealthy = "Unhealthy"
	// NodeReasonScaleDown means that the machine is deleted because it is not wanted any more.
	NodeReasonScaleDown = "ScaleDown"
)

// Reasons of NodeInPlaceUpdate, in the order in which they come.
const (
	// NodeReasonCandidateForUpdate means that the Node waits for its turn.
	NodeReasonCandidateForUpdate = "CandidateForUpdate"
	// NodeReasonSelectedForUpdate means that the Node is drained.
	NodeReasonSelectedForUpdate = "SelectedForUpdate"
	// NodeReasonDrainSuccessful means that the Node is drained and its machine is not yet told.
	NodeReasonDrainSuccessful = "DrainSuccessful"
	// NodeReasonReadyForUpdate means that whoever updates Nodes may begin.
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
	// PreservedNodeForced means that all pods have gone, but not all of them in good. MCM says that the drain succeeded.
	PreservedNodeForced = "Preserved node was drained by force."
	// PreservedNodeNotDrained means that the drain failed.
	PreservedNodeNotDrained = "Preserved node could not be drained."
)
