package v1alpha1

// MachineDeploymentConditionType is the type of a MachineDeployment's condition.
type MachineDeploymentConditionType string

// Condition types of a MachineDeployment.
const (
	// MachineDeploymentAvailable is True while enough machines are available.
	MachineDeploymentAvailable MachineDeploymentConditionType = "Available"
	// MachineDeploymentProgressing is True while a rollout makes progress, and when it is complete.
	MachineDeploymentProgressing MachineDeploymentConditionType = "Progressing"
	// MachineDeploymentReplicaFailure is True while the API server refuses to create or delete
	// Machines of a MachineSet. Else it is not there.
	MachineDeploymentReplicaFailure MachineDeploymentConditionType = "ReplicaFailure"
	// MachineDeploymentMachineCreateFailure is True while the VM of a machine could not be created;
	// the message has the error. Else it is not there. MCM does not have it.
	MachineDeploymentMachineCreateFailure MachineDeploymentConditionType = "MachineCreateFailure"
	// MachineDeploymentFrozen is True while one of its MachineSets has the label freeze=True, and may
	// not create machines. Else it is not there.
	MachineDeploymentFrozen MachineDeploymentConditionType = "Frozen"
	// MachineDeploymentMachinesReleased repeats MachineSetMachinesReleased, of the first of its
	// MachineSets. MCM does not have it.
	MachineDeploymentMachinesReleased MachineDeploymentConditionType = "MachinesReleased"
	// MachineDeploymentCreationDelayed repeats MachineSetCreationDelayed, of the first of its
	// MachineSets. MCM does not have it.
	MachineDeploymentCreationDelayed MachineDeploymentConditionType = "CreationDelayed"
	// MachineDeploymentValid is False while the spec cannot work, or no new machine gets a VM because
	// of its MachineClass, and True with ReasonRemarks while a part of it has another meaning than its
	// author may expect. Else it is not there. MCM does not have it.
	MachineDeploymentValid MachineDeploymentConditionType = "Valid"
	// MachineDeploymentCircuitBreakerOpen is True while unhealthy machines of the deployment are not
	// replaced because too many machines around them are not Ready. It is False while an
	// AnnotationCircuitBreaker is ignored. Else it is not there. MCM does not have it.
	MachineDeploymentCircuitBreakerOpen MachineDeploymentConditionType = "CircuitBreakerOpen"
	// MachineDeploymentAPIServerAway is True while the API server of the target cluster does not
	// answer, so that no machine of the deployment is created, replaced or deleted. Else it is not
	// there. MCM does not have it.
	MachineDeploymentAPIServerAway MachineDeploymentConditionType = "APIServerAway"
	// MachineDeploymentRolloutStalled is True while a rollout does not move on, although it is not
	// paused; the reason is the cause. Else it is not there. MCM does not have it.
	MachineDeploymentRolloutStalled MachineDeploymentConditionType = "RolloutStalled"
)

// MachineSetConditionType is the type of a MachineSet's condition.
type MachineSetConditionType string

// Condition types of a MachineSet.
const (
	// MachineSetReplicaFailure is True while the API server refuses to create or delete Machines of
	// the set. Else it is not there.
	MachineSetReplicaFailure MachineSetConditionType = "ReplicaFailure"
	// MachineSetMachineCreateFailure has the meaning of MachineDeploymentMachineCreateFailure, on a
	// set. MCM does not have it.
	MachineSetMachineCreateFailure MachineSetConditionType = "MachineCreateFailure"
	// MachineSetFrozen is True while the set has the label freeze=True, and may not create machines.
	// Else it is not there.
	MachineSetFrozen MachineSetConditionType = "Frozen"
	// MachineSetMachinesReleased is True for an hour after the set has released machines, because
	// their labels do not match its selector. It creates others in their place. Else it is
	// not there. MCM does not have it.
	MachineSetMachinesReleased MachineSetConditionType = "MachinesReleased"
	// MachineSetCreationDelayed is True while machines of the set fail again and again soon after
	// their creation, so that the next is created some time after the failure of the last. Else it is
	// not there. MCM does not have it.
	MachineSetCreationDelayed MachineSetConditionType = "CreationDelayed"
	// MachineSetValid has the meaning of MachineDeploymentValid, on a set; remarks are on one without
	// a controller. MCM does not have it.
	MachineSetValid MachineSetConditionType = "Valid"
	// MachineSetCircuitBreakerOpen has the meaning of MachineDeploymentCircuitBreakerOpen, on a set
	// without a controller. MCM does not have it.
	MachineSetCircuitBreakerOpen MachineSetConditionType = "CircuitBreakerOpen"
	// MachineSetAPIServerAway has the meaning of MachineDeploymentAPIServerAway, on a set without a
	// controller. MCM does not have it.
	MachineSetAPIServerAway MachineSetConditionType = "APIServerAway"
)

// Reasons of MachineDeploymentAvailable.
const (
	// ReasonMinimumReplicasAvailable means that enough machines are available.
	ReasonMinimumReplicasAvailable = "MinimumReplicasAvailable"
	// ReasonMinimumReplicasUnavailable means that too few machines are available.
	ReasonMinimumReplicasUnavailable = "MinimumReplicasUnavailable"
)

// Reasons of MachineDeploymentProgressing.
const (
	// ReasonNewMachineSetCreated (True) means that the new MachineSet was created.
	ReasonNewMachineSetCreated = "NewMachineSetCreated"
	// ReasonFoundNewMachineSet (True) means that there was a MachineSet of the wanted template
	// already.
	ReasonFoundNewMachineSet = "FoundNewMachineSet"
	// ReasonMachineSetUpdated (True) means that the rollout got on. Its lastUpdateTime is what the
	// progress deadline is measured from.
	ReasonMachineSetUpdated = "MachineSetUpdated"
	// ReasonNewMachineSetAvailable (True) means that the rollout is complete. Only then, or while the
	// deployment is paused, does the cluster-autoscaler scale down.
	ReasonNewMachineSetAvailable = "NewMachineSetAvailable"
	// ReasonProgressDeadlineExceeded (False) means that the rollout made no progress for
	// progressDeadlineSeconds.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonMachineSetCreateError (False) means that the new MachineSet could not be created. It is
	// the reason of the Event, too.
	ReasonMachineSetCreateError = "MachineSetCreateError"
	// ReasonDeploymentPaused (Unknown) means that the deployment is paused.
	ReasonDeploymentPaused = "DeploymentPaused"
	// ReasonDeploymentResumed (Unknown) means that the deployment was paused.
	ReasonDeploymentResumed = "DeploymentResumed"
	// ReasonDeleting (Unknown) means that the deployment is being deleted: no rollout is under way any
	// more.
	ReasonDeleting = "Deleting"
)

// Reasons of MachineDeploymentRolloutStalled, in addition to those of the ReplicaFailure
// conditions. MCM does not have them.
const (
	// ReasonMachineCreateFailed means that a new machine could not be created; the message has the
	// error. It is the reason of the MachineCreateFailure conditions, too.
	ReasonMachineCreateFailed = "MachineCreateFailed"
	// ReasonMachineSetFrozen means that the new MachineSet must not create machines.
	ReasonMachineSetFrozen = "MachineSetFrozen"
	// ReasonMachinesNotAvailable means that new machines have not become available for a minute.
	ReasonMachinesNotAvailable = "MachinesNotAvailable"
	// ReasonMachinesTerminating means that machines that are being deleted have still existed after a
	// minute. They count until they no longer exist.
	ReasonMachinesTerminating = "MachinesTerminating"
	// ReasonMachinesNotDeleted means that an old MachineSet has for a minute had more machines than
	// its replicas, and that none of them is being deleted.
	ReasonMachinesNotDeleted = "MachinesNotDeleted"
	// ReasonMachinesPreserved means that a new machine has failed and is preserved, so that it is not
	// replaced.
	ReasonMachinesPreserved = "MachinesPreserved"
	// ReasonInPlaceUpdateNotSupported means that there is no target cluster, and so no Node that could
	// be updated in place.
	ReasonInPlaceUpdateNotSupported = "InPlaceUpdateNotSupported"
	// ReasonInPlaceUpdateFailed means that the update in place of a machine has failed; the message
	// has the reason.
	ReasonInPlaceUpdateFailed = "InPlaceUpdateFailed"
	// ReasonMachinesUpdating means that the update in place of a machine has not ended for a minute.
	ReasonMachinesUpdating = "MachinesUpdating"
	// ReasonNodesNotSelected means that with orchestration type Manual Nodes have not been selected by
	// a user.
	ReasonNodesNotSelected = "NodesNotSelected"
)

// Reasons of the ReplicaFailure conditions, and of Events on MachineSets.
const (
	// ReasonFailedCreate means that the API server refused to create a Machine.
	ReasonFailedCreate = "FailedCreate"
	// ReasonFailedDelete means that the API server refused to delete a Machine.
	ReasonFailedDelete = "FailedDelete"
)

// Reasons of the Frozen conditions.
const (
	// ReasonOverShootingReplicaCount means that a MachineSet has more machines than it can have
	// created.
	ReasonOverShootingReplicaCount = "OverShootingReplicaCount"
	// ReasonMachineDeploymentStateSync means that the deployment is frozen because one of its
	// MachineSets is.
	ReasonMachineDeploymentStateSync = "MachineDeploymentStateSync"
	// ReasonFreezeLabel means that a MachineSet has the label freeze=True, and that the client that
	// set the label has not recorded a reason. MCM does not have it.
	ReasonFreezeLabel = "FreezeLabel"
)

// ReasonLabelsDoNotMatch is the reason of the MachinesReleased conditions. MCM does not have it.
const ReasonLabelsDoNotMatch = "LabelsDoNotMatch"

// ReasonMachinesFailEarly is the reason of the CreationDelayed conditions. MCM does not have it.
const ReasonMachinesFailEarly = "MachinesFailEarly"

// Reasons of the Valid conditions. MCM does not have them.
const (
	// ReasonInvalidSpec means that the spec breaks a rule; the message names it.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonInvalidClass means that the object is reconciled, and that no machine of its MachineClass
	// gets a VM: the class, its Secret or its provider does not exist, or the class is invalid.
	ReasonInvalidClass = "InvalidClass"
	// ReasonTargetUnavailable means that the object is reconciled, and that its machines wait for the
	// target cluster of the namespace, whose Secret is missing or invalid, or which does not answer.
	ReasonTargetUnavailable = "TargetUnavailable"
	// ReasonRemarks means that the object is reconciled, and that a part of its spec has another
	// meaning than its author may expect, as in MCM; the message names it.
	ReasonRemarks = "Remarks"
	// ReasonSelectorMatchesNothing means that the selector does not match the labels of the template,
	// or is not there, so that a machine created from the template would not be found again.
	ReasonSelectorMatchesNothing = "SelectorMatchesNothing"
	// ReasonSelectorMatchesEverything means that the selector is empty, so that it would match all
	// machines.
	ReasonSelectorMatchesEverything = "SelectorMatchesEverything"
	// ReasonNoStrategy means that the MachineDeployment names no strategy, was ignored for it before
	// the fleet was installed, and is not reconciled until its spec changes. AnnotationStrategy is on
	// those that are reconciled.
	ReasonNoStrategy = "NoStrategy"
)

// Reasons of the CircuitBreakerOpen conditions. MCM does not have them.
const (
	// ReasonZoneNotReady means that too many machines of a zone are not Ready.
	ReasonZoneNotReady = "ZoneNotReady"
	// ReasonTargetNotReady means that too many machines of the whole target cluster are not Ready.
	ReasonTargetNotReady = "TargetNotReady"
	// ReasonThresholdsIgnored (False) means that an AnnotationCircuitBreaker is invalid, or that too
	// many different ones are in use, or that the AnnotationMaxDeletions is invalid.
	ReasonThresholdsIgnored = "ThresholdsIgnored"
)

// ReasonNoAnswer is the reason of the APIServerAway conditions. MCM does not have it.
const ReasonNoAnswer = "NoAnswer"
