package v1alpha1

// Finalizers.
const (
	// FinalizerName keeps an object until everything below it (for a Machine: its Node and VM; for a
	// MachineClass: the Machines that use it) is deleted.
	//
	// On: MachineDeployments, MachineSets, Machines, MachineClasses. By: fleet. See: architecture.md.
	FinalizerName = "machine.sapcloud.io/machine-controller-manager"
	// SecretFinalizerName keeps a Secret while a MachineClass refers to it.
	//
	// On: Secrets. By: fleet. See: architecture.md.
	SecretFinalizerName = "machine.sapcloud.io/machine-controller"
	// NodeFinalizerName keeps a Node while it has a Machine, so that deleting the Node deletes the
	// Machine first.
	//
	// On: Nodes. By: fleet. See: architecture.md.
	NodeFinalizerName = "node.machine.sapcloud.io/machine-controller"
)

// Labels on MachineDeployments, MachineSets and Machines.
const (
	// LabelNode is the name of the Node of the Machine. It is the only link between the two.
	//
	// On: Machines. By: fleet. Value: name of a Node. See: architecture.md.
	LabelNode = "node"
	// LabelName is by convention the name of the MachineDeployment. The cluster-autoscaler needs it;
	// the fleet decides nothing by it.
	//
	// On: Machines. By: user, in the template. Value: name of a MachineDeployment. See: autoscaler.md.
	LabelName = "name"
	// LabelMachineTemplateHash distinguishes the MachineSets of one MachineDeployment. It is on the
	// sets, in their selectors and templates, and on their Machines.
	//
	// On: MachineSets, Machines. By: fleet. Value: hash. See: operations/rollouts.md.
	LabelMachineTemplateHash = "machine-template-hash"
	// LabelFreeze stops a MachineSet from creating Machines; on a MachineDeployment it shows that one
	// of its sets is stopped.
	//
	// On: MachineSets, MachineDeployments. By: fleet, user. Value: `True`. See:
	// operations/rollouts.md#a-machineset-is-frozen.
	LabelFreeze = "freeze"
	// LabelForceDeletion has the deletion of the Machine pay no regard to its pods.
	//
	// On: Machines. By: user. Value: a true value, as strconv.ParseBool reads it. See:
	// troubleshooting.md#a-machine-stays-in-terminating.
	LabelForceDeletion = "force-deletion"
	// LabelForceDrain forces the drain that comes before an update in place or before preservation. As
	// in MCM it does not force the drain of a deletion: LabelForceDeletion does.
	//
	// On: Machines. By: user. Value: `True`. See: troubleshooting.md#a-machine-stays-in-terminating.
	LabelForceDrain = "force-drain"
	// LabelScaleUpDisabled stops a MachineSet from creating Machines while its machines are updated in
	// place.
	//
	// On: MachineSets. By: fleet. Value: any. See: operations/rollouts.md#updates-in-place.
	LabelScaleUpDisabled = "node.machine.sapcloud.io/scale-up-disabled"
)

// Labels on Nodes.
const (
	// LabelMachineName is the name of the Machine of the Node.
	//
	// On: Nodes. By: fleet. Value: name of a Machine. See: architecture.md.
	LabelMachineName = "node.gardener.cloud/machine-name"
	// LabelCandidateForUpdate marks a Node to be updated in place.
	//
	// On: Nodes. By: fleet. Value: `true`. See: operations/inplace.md.
	LabelCandidateForUpdate = "node.machine.sapcloud.io/candidate-for-update"
	// LabelSelectedForUpdate starts the update in place of a Node. It is set by the controller or,
	// with orchestration type Manual, by the user.
	//
	// On: Nodes. By: fleet, user. Value: `true`. See: operations/inplace.md.
	LabelSelectedForUpdate = "node.machine.sapcloud.io/selected-for-update"
	// LabelUpdateResult is the result of the update in place of a Node, set by the agent; on a Machine
	// it is there while the machine is transferred to its new MachineSet.
	//
	// On: Nodes, Machines. By: agent, fleet. Value: `successful`, `failed`. See:
	// operations/inplace.md.
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
	// AnnotationRevision is the number of the revision.
	//
	// On: MachineDeployments, MachineSets. By: fleet. Value: number. See:
	// operations/rollouts.md#pause-roll-back-change-the-template-again.
	AnnotationRevision = "deployment.kubernetes.io/revision"
	// AnnotationRevisionHistory lists the revisions that the MachineSet was before.
	//
	// On: MachineSets. By: fleet. Value: numbers, separated by commas. See:
	// operations/rollouts.md#pause-roll-back-change-the-template-again.
	AnnotationRevisionHistory = "deployment.kubernetes.io/revision-history"
	// AnnotationDesiredReplicas is the number of replicas of the MachineDeployment when the set was
	// last scaled.
	//
	// On: MachineSets. By: fleet. Value: number. See: operations/rollouts.md.
	AnnotationDesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	// AnnotationMaxReplicas is AnnotationDesiredReplicas plus the surge that was allowed then.
	//
	// On: MachineSets. By: fleet. Value: number. See: operations/rollouts.md.
	AnnotationMaxReplicas = "deployment.kubernetes.io/max-replicas"
	// AnnotationTriggerDeletion of a MachineDeployment names the machines to delete first, as
	// "name~RFC3339" separated by commas. The cluster-autoscaler writes it; older ones write names
	// only. On a Machine or its Node, "true" deletes the Machine.
	//
	// On: MachineDeployments, Machines, Nodes. By: cluster-autoscaler, user. Value: names; `true` on a
	// Machine or Node. See: autoscaler.md#naming-machines.
	AnnotationTriggerDeletion = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	// AnnotationLastReplicaChangeByScaler is when the cluster-autoscaler last changed the replicas. It
	// is written on the MachineDeployment and copied to its MachineSets, which then may delete the
	// machines marked up to that time.
	//
	// On: MachineDeployments, MachineSets. By: cluster-autoscaler, fleet. Value: RFC 3339. See:
	// autoscaler.md#naming-machines.
	AnnotationLastReplicaChangeByScaler = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
	// AnnotationUnfreeze requests the end of a freeze: of the MachineSet, or of all sets of the
	// MachineDeployment. It is removed together with the freeze.
	//
	// On: MachineDeployments, MachineSets. By: user. Value: any. See:
	// operations/rollouts.md#a-machineset-is-frozen.
	AnnotationUnfreeze = "safety.machine.sapcloud.io/unfreeze"
	// AnnotationPreferNoSchedule means that the Nodes of the MachineSet carry TaintPreferNoSchedule.
	//
	// On: MachineSets. By: fleet. Value: `True`. See:
	// operations/rollouts.md#taints-and-annotations-of-nodes-during-a-rollout.
	AnnotationPreferNoSchedule = TaintPreferNoSchedule
	// PreferNoScheduleTrue is the value of AnnotationPreferNoSchedule and of TaintPreferNoSchedule.
	PreferNoScheduleTrue = "True"
	// AnnotationEffectiveCreationTimeout overrides creationTimeout for new machines. It is copied from
	// MachineDeployment to MachineSet to Machine.
	//
	// On: MachineDeployments, MachineSets, Machines. By: user, fleet. Value: Go duration. See:
	// operations/configure.md.
	AnnotationEffectiveCreationTimeout = "node.machine.sapcloud.io/effective-creation-timeout"
)

// Annotations on Machines.
const (
	// AnnotationPriority orders deletions: when a MachineSet shrinks, machines with lower values are
	// deleted first.
	//
	// On: Machines. By: cluster-autoscaler, fleet, user. Value: integer. See:
	// autoscaler.md#naming-machines.
	AnnotationPriority = "machinepriority.machine.sapcloud.io"
	// AnnotationMarkedForDeletionTime is the time that came with the machine in
	// AnnotationTriggerDeletion.
	//
	// On: Machines. By: fleet. Value: RFC 3339. See: autoscaler.md#naming-machines.
	AnnotationMarkedForDeletionTime = "machine.sapcloud.io/marked-for-deletion-time"
	// AnnotationLastAppliedNodePreserveValue is the value of the Node's AnnotationPreserve that was
	// last acted upon.
	//
	// On: Machines. By: fleet. Value: as of the annotation of the Node. See: operations/preserve.md.
	AnnotationLastAppliedNodePreserveValue = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	// AnnotationPreserve requests to keep a machine that has failed or is expected to fail.
	//
	// On: Machines, Nodes. By: user, fleet. Value: `now`, `when-failed`, `auto-preserved`, `false`.
	// See: operations/preserve.md.
	AnnotationPreserve = "node.machine.sapcloud.io/preserve"
)

// Values of AnnotationPriority.
const (
	// PriorityDefault is the priority of a machine that has none, or one whose value is no number.
	PriorityDefault = "3"
	// PriorityTriggered is the priority of a machine that was named in AnnotationTriggerDeletion: it
	// is deleted first.
	PriorityTriggered = "1"
)

// Values of AnnotationPreserve.
const (
	// PreserveNow preserves the machine at once, healthy or not.
	PreserveNow = "now"
	// PreserveWhenFailed preserves the machine when it fails.
	PreserveWhenFailed = "when-failed"
	// PreserveAuto means that the MachineSet chose to preserve the machine, within
	// autoPreserveFailedMachineMax.
	PreserveAuto = "auto-preserved"
	// PreserveFalse keeps the machine from being preserved.
	PreserveFalse = "false"
)

// Annotations on Nodes.
const (
	// AnnotationNotManaged means that the Node has no Machine.
	//
	// On: Nodes. By: fleet. Value: `1`. See: operations/safety.md#nodes-without-a-machine.
	AnnotationNotManaged = "node.machine.sapcloud.io/not-managed-by-mcm"
	// AnnotationLastAppliedNodeTemplate is the nodeTemplate of the Machine that was last applied to
	// the Node.
	//
	// On: Nodes. By: fleet. Value: JSON. See: architecture.md.
	AnnotationLastAppliedNodeTemplate = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	// AnnotationLastAppliedVirtualCapacity is the virtualCapacity of the MachineClass that was last
	// applied to the Node.
	//
	// On: Nodes. By: fleet. Value: JSON. See: architecture.md.
	AnnotationLastAppliedVirtualCapacity = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	// AnnotationUpdateFailedReason is why the update in place of the Node failed.
	//
	// On: Nodes. By: agent. Value: text. See: operations/inplace.md#when-an-update-fails.
	AnnotationUpdateFailedReason = "node.machine.sapcloud.io/update-failed-reason"
	// AnnotationScaleDownDisabled keeps the cluster-autoscaler from removing the Node.
	//
	// On: Nodes. By: user, fleet. Value: `true`. See:
	// operations/rollouts.md#taints-and-annotations-of-nodes-during-a-rollout.
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// AnnotationScaleDownDisabledByUs means that the controller set AnnotationScaleDownDisabled and
	// may remove it again. Without it the annotation is a user's.
	//
	// On: Nodes. By: fleet. Value: `true`. See:
	// operations/rollouts.md#taints-and-annotations-of-nodes-during-a-rollout.
	AnnotationScaleDownDisabledByUs = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
)

// What the fleet adds to MCM's names. MCM ignores all of it.
const (
	// FleetDomain is the prefix of the names that are the fleet's own.
	FleetDomain = "fleet.machine.sapcloud.io/"
	// AnnotationIntents holds the machines that the MachineSet is about to create and to delete. They
	// are recorded before the first of them is created or deleted, and removed when that is observed,
	// so that the next pass, of this holder or a later one, finishes what was begun and decides
	// nothing else.
	//
	// On: MachineSets. By: fleet. Value: JSON. See: architecture.md.
	AnnotationIntents = FleetDomain + "intents"
	// AnnotationOrdinal is the ordinal that the name of the Machine was derived from. With the set's
	// UID it distinguishes a machine that this set has already created (success) from an unrelated one
	// of the same name.
	//
	// On: Machines. By: fleet. Value: number. See: architecture.md.
	AnnotationOrdinal = FleetDomain + "ordinal"
	// AnnotationUncordonAt is when the cluster-autoscaler's cordon is removed from the Node of the
	// Machine: it has named the machine and cordoned the Node, and the machine stays all the same. A
	// cordon of another client is not removed.
	//
	// On: Machines. By: fleet. Value: RFC 3339. See: autoscaler.md.
	AnnotationUncordonAt = FleetDomain + "uncordon-at"
	// AnnotationTargetCluster is on a Lease of a namespace: the UID of the Namespace kube-system of
	// the namespace's target cluster, as it was first.
	//
	// On: Leases. By: fleet. Value: UID. See: operations/landscapes.md.
	AnnotationTargetCluster = FleetDomain + "target-cluster"
	// AnnotationTraceparent is the trace context of the write that created an object, last sized a
	// MachineSet, or claimed a Node.
	//
	// On: MachineSets, Machines, Nodes. By: fleet. Value: W3C trace context. See:
	// operations/tracing.md.
	AnnotationTraceparent = "tracing.k8s.io/traceparent"
)

// What a user's Secret may hold for the controller to fill in.
const (
	// SecretKeyUserData is the key, in the data of a class' Secret, of what a VM boots with. It must
	// be there.
	SecretKeyUserData = "userData"
	// PlaceholderBootstrapToken in the user data, plain or URL-encoded, is replaced by a bootstrap
	// token.
	PlaceholderBootstrapToken = "<<BOOTSTRAP_TOKEN>>"
	// PlaceholderMachineName in the user data, plain or URL-encoded, is replaced by the name of the
	// Machine.
	PlaceholderMachineName = "<<MACHINE_NAME>>"
	// PlaceholderMachineConfig in the user data, plain or URL-encoded, is replaced by the
	// RenderedMachineConfig that the machine boots with: the base64 of the gzip of its JSON.
	// PlaceholderMachineConfigName is replaced by its name, and PlaceholderMachineConfigIgnition by
	// its Ignition config, encoded like the whole.
	PlaceholderMachineConfig         = "<<MACHINE_CONFIG>>"
	PlaceholderMachineConfigName     = "<<MACHINE_CONFIG_NAME>>"
	PlaceholderMachineConfigIgnition = "<<MACHINE_CONFIG_IGNITION>>"
)

// MachineConfigPlaceholders returns the placeholders of machine configuration.
func MachineConfigPlaceholders() []string {
	return []string{PlaceholderMachineConfig, PlaceholderMachineConfigName, PlaceholderMachineConfigIgnition}
}
