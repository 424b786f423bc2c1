package v1alpha1

// Finalizers.
const (
	// FinalizerName is the finalizer on MachineDeployments, MachineSets, Machines and MachineClasses. It keeps an object
	// until everything below it (for a Machine: its Node and VM; for a MachineClass: the Machines that use it) is deleted.
	FinalizerName = "machine.sapcloud.io/machine-controller-manager"
	// SecretFinalizerName keeps a Secret while a MachineClass refers to it.
	SecretFinalizerName = "machine.sapcloud.io/machine-controller"
	// NodeFinalizerName keeps a Node while it has a Machine, so that deleting the Node deletes the Machine first.
	NodeFinalizerName = "node.machine.sapcloud.io/machine-controller"
)

// Labels on MachineDeployments, MachineSets and Machines.
const (
	// LabelNode on a Machine is the name of its Node. It is the only link between the two.
	LabelNode = "node"
	// LabelName on a Machine, by way of its template, is by convention the name of its MachineDeployment. Machines with
	// one value are replaced one at a time when they fail.
	LabelName = "name"
	// LabelMachineTemplateHash distinguishes the MachineSets of one MachineDeployment. It is on the sets, in their
	// selectors and templates, and on their Machines.
	LabelMachineTemplateHash = "machine-template-hash"
	// LabelFreeze with value "True" on a MachineSet stops it from creating Machines; on a MachineDeployment it shows that
	// one of its sets is stopped.
	LabelFreeze = "freeze"
	// LabelForceDeletion with a true value (as strconv.ParseBool reads it) on a Machine deletes it without regard for its
	// pods.
	LabelForceDeletion = "force-deletion"
	// LabelForceDrain with value "True" on a Machine forces the drain that comes before an update in place or before
	// preservation. As in MCM it does not force the drain of a deletion: LabelForceDeletion does.
	LabelForceDrain = "force-drain"
	// LabelScaleUpDisabled on a MachineSet, with any value, stops it from creating Machines while its machines are updated
	// in place.
	LabelScaleUpDisabled = "node.machine.sapcloud.io/scale-up-disabled"
)

// Labels on Nodes.
const (
	// LabelMachineName on a Node is the name of its Machine.
	LabelMachineName = "node.gardener.cloud/machine-name"
	// LabelCandidateForUpdate with value "true" on a Node marks it to be updated in place.
	LabelCandidateForUpdate = "node.machine.sapcloud.io/candidate-for-update"
	// LabelSelectedForUpdate with value "true" on a Node starts its update in place. It is set by the controller or, with
	// orchestration type Manual, by the user.
	LabelSelectedForUpdate = "node.machine.sapcloud.io/selected-for-update"
	// LabelUpdateResult on a Node is the result of its update in place, set by the agent; on a Machine it is there while
	// the machine is transferred to its new MachineSet.
	LabelUpdateResult = "node.machine.sapcloud.io/update-result"
)

// Values of LabelUpdateResult.
const (
	// UpdateResultSuccessful means that the update in place succeeded.
	UpdateResultSuccessful = "successful"
	// UpdateResultFailed means that the update in place failed.
	UpdateResultFailed = "failed"
)

// Annotations on MachineDeployments and MachineSets.
const (
	// AnnotationRevision on a MachineDeployment or MachineSet is the number of its revision.
	AnnotationRevision = "deployment.kubernetes.io/revision"
	// AnnotationRevisionHistory on a MachineSet lists, separated by commas, the revisions that it was before.
	AnnotationRevisionHistory = "deployment.kubernetes.io/revision-history"
	// AnnotationDesiredReplicas on a MachineSet is the number of replicas of its MachineDeployment when the set was last
	// scaled.
	AnnotationDesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	// AnnotationMaxReplicas on a MachineSet is AnnotationDesiredReplicas plus the surge that was allowed then.
	AnnotationMaxReplicas = "deployment.kubernetes.io/max-replicas"
	// AnnotationTriggerDeletion on a MachineDeployment names the machines to delete first, as "name~RFC3339" separated by
	// commas. The cluster-autoscaler writes it; older ones write names only.
	AnnotationTriggerDeletion = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	// AnnotationLastReplicaChangeByScaler is when the cluster-autoscaler last changed the replicas, RFC3339. It is written
	// on the MachineDeployment and copied to its MachineSets, which then may delete the machines marked up to that time.
	AnnotationLastReplicaChangeByScaler = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
	// AnnotationUnfreeze on a MachineDeployment or MachineSet, with any value, requests the end of a freeze: of all its
	// sets, or of its own. It is removed together with the freeze.
	AnnotationUnfreeze = "safety.machine.sapcloud.io/unfreeze"
	// AnnotationPreferNoSchedule with value "True" on a MachineSet means that its Nodes carry TaintPreferNoSchedule.
	AnnotationPreferNoSchedule = TaintPreferNoSchedule
	// PreferNoScheduleTrue is the value of AnnotationPreferNoSchedule and of TaintPreferNoSchedule.
	PreferNoScheduleTrue = "True"
	// AnnotationEffectiveCreationTimeout is a Go duration that overrides creationTimeout for new machines. It is copied
	// from MachineDeployment to MachineSet to Machine.
	AnnotationEffectiveCreationTimeout = "node.machine.sapcloud.io/effective-creation-timeout"
)

// Annotations on Machines.
const (
	// AnnotationPriority is an integer: when a MachineSet shrinks, machines with lower values are deleted first.
	AnnotationPriority = "machinepriority.machine.sapcloud.io"
	// AnnotationMarkedForDeletionTime is the time, RFC3339, that came with the machine in AnnotationTriggerDeletion.
	AnnotationMarkedForDeletionTime = "machine.sapcloud.io/marked-for-deletion-time"
	// AnnotationLastAppliedNodePreserveValue is the value of the Node's AnnotationPreserve that was last acted upon.
	AnnotationLastAppliedNodePreserveValue = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	// AnnotationPreserve on a Machine or its Node requests to keep a machine that has failed or is expected to fail. Its
	// values are the Preserve constants.
	AnnotationPreserve = "node.machine.sapcloud.io/preserve"
)

// Values of AnnotationPriority.
const (
	// PriorityDefault is the priority of a machine that has none, or one whose value is no number.
	PriorityDefault = "3"
	// PriorityTriggered is the priority of a machine that was named in AnnotationTriggerDeletion: it is deleted first.
	PriorityTriggered = "1"
)

// Values of AnnotationPreserve.
const (
	// PreserveNow preserves the machine at once, healthy or not.
	PreserveNow = "now"
	// PreserveWhenFailed preserves the machine when it fails.
	PreserveWhenFailed = "when-failed"
	// PreserveAuto means that the MachineSet chose to preserve the machine, within autoPreserveFailedMachineMax.
	PreserveAuto = "auto-preserved"
	// PreserveFalse keeps the machine from being preserved.
	PreserveFalse = "false"
)

// Annotations on Nodes.
const (
	// AnnotationNotManaged with value "1" on a Node means that it has no Machine.
	AnnotationNotManaged = "node.machine.sapcloud.io/not-managed-by-mcm"
	// AnnotationLastAppliedNodeTemplate on a Node is the machine's nodeTemplate that was last applied to it, as JSON.
	AnnotationLastAppliedNodeTemplate = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	// AnnotationLastAppliedVirtualCapacity on a Node is the class' virtualCapacity that was last applied to it, as JSON.
	AnnotationLastAppliedVirtualCapacity = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	// AnnotationUpdateFailedReason on a Node is why its update in place failed, set by the agent.
	AnnotationUpdateFailedReason = "node.machine.sapcloud.io/update-failed-reason"
	// AnnotationScaleDownDisabled with value "true" on a Node keeps the cluster-autoscaler from removing it.
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// AnnotationScaleDownDisabledByUs with value "true" on a Node means that the controller set AnnotationScaleDownDisabled
	// and may remove it again. Without it the annotation is a user's.
	AnnotationScaleDownDisabledByUs = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
)

// What the fleet adds to MCM's names. MCM ignores all of it.
const (
	// FleetDomain is the prefix of the names that are the fleet's own.
	FleetDomain = "fleet.machine.sapcloud.io/"
	// AnnotationIntents on a MachineSet holds, as JSON, the machines that it is about to create and to delete. They are
	// recorded before the first of them is created or deleted, and removed when that is observed, so that the next pass, of
	// this holder or a later one, finishes what was begun and makes no new decision beside it.
	AnnotationIntents = FleetDomain + "intents"
	// AnnotationOrdinal on a Machine is the ordinal that its name was derived from. With the set's UID it distinguishes a
	// machine that this set has already created (success) from an unrelated one of the same name.
	AnnotationOrdinal = FleetDomain + "ordinal"
	// AnnotationUncordonAt on a Machine is when, RFC3339, the cluster-autoscaler's cordon is removed from its Node: it has named the
	// machine and cordoned the Node, and the machine stays all the same. A cordon of another client is not removed.
	AnnotationUncordonAt = FleetDomain + "uncordon-at"
	// AnnotationTraceparent is the W3C trace context of the write that created an object, last sized a MachineSet, or claimed a Node.
	AnnotationTraceparent = "tracing.k8s.io/traceparent"
)

// What a user's Secret may hold for the controller to fill in.
const (
	// SecretKeyUserData is the key, in the data of a class' Secret, of what a VM boots with. It must be there.
	SecretKeyUserData = "userData"
	// PlaceholderBootstrapToken in the user data, plain or URL-encoded, is replaced by a bootstrap token.
	PlaceholderBootstrapToken = "<<BOOTSTRAP_TOKEN>>"
	// PlaceholderMachineName in the user data, plain or URL-encoded, is replaced by the name of the Machine.
	PlaceholderMachineName = "<<MACHINE_NAME>>"
	// PlaceholderMachineConfig in the user data, plain or URL-encoded, is replaced by the RenderedMachineConfig that the machine boots with:
	// the base64 of the gzip of its JSON. PlaceholderMachineConfigName is replaced by its name, and PlaceholderMachineConfigIgnition by its
	// Ignition config, encoded like the whole.
	PlaceholderMachineConfig         = "<<MACHINE_CONFIG>>"
	PlaceholderMachineConfigName     = "<<MACHINE_CONFIG_NAME>>"
	PlaceholderMachineConfigIgnition = "<<MACHINE_CONFIG_IGNITION>>"
)

// MachineConfigPlaceholders returns the placeholders of machine configuration.
func MachineConfigPlaceholders() []string {
	return []string{PlaceholderMachineConfig, PlaceholderMachineConfigName, PlaceholderMachineConfigIgnition}
}
