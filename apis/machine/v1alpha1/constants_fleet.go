package v1alpha1

// What the fleet records on objects that it makes, beyond the constants of Machine Controller Manager.
const (
	// AnnotationMachineUID is on bootstrap token Secrets: the UID of the Machine that the token is for.
	AnnotationMachineUID = FleetDomain + "machine-uid"
	// AnnotationTokenOf is on bootstrap token Secrets: "<namespace>/<name>" of the Machine that the token is for.
	AnnotationTokenOf = FleetDomain + "token-of"
	// AnnotationCreateSent is on Machines for which a request to create a VM may have been sent to the cloud, from before
	// that until the VM's provider ID is recorded: a VM may exist although none is known. Machines whose class exists are
	// created with it. Its value is "true".
	AnnotationCreateSent = FleetDomain + "create-sent"
	// AnnotationTokenLeft is on Machines that are being deleted and whose bootstrap token could not be removed before that
	// began, because the target cluster did not answer. Its value is "true".
	AnnotationTokenLeft = FleetDomain + "token-left"
	// AnnotationBackoff is on Machines for whose VM calls of the cloud fail: when the next call may be made, what the wait
	// after that is computed from, and which error codes were reported, as JSON. Without it the cloud is called at once.
	AnnotationBackoff = FleetDomain + "backoff"
	// AnnotationSetAside is on Machines whose processing has panicked: how often, until when they are not processed, and
	// the message of the panic, as JSON. Without it the machine is processed at once.
	AnnotationSetAside = FleetDomain + "set-aside"
	// AnnotationPreserveBegan is on a Machine that is preserved: when that began, as RFC 3339.
	AnnotationPreserveBegan = FleetDomain + "preserve-began"
	// AnnotationPreserveProlonged is on a Machine that is preserved: when its expiry time was last prolonged by a time in which nothing could be
	// done for it, as RFC 3339.
	AnnotationPreserveProlonged = FleetDomain + "preserve-prolonged"
	// AnnotationReported is on Machines with a lasting problem that no status shows: the Event that reported it last, as
	// its reason and a checksum of its message. Each problem is reported once. Those of several are separated by commas.
	AnnotationReported = FleetDomain + "reported"
)

// AnnotationMachine on a Node is the Machine that the Node is bound to: "<namespace>/<name>/<UID>". The Node gets it with its
// claim. It is the Machine's only while the provider IDs of both are the same, too: a kubelet can write this annotation.
const AnnotationMachine = FleetDomain + "machine"

// AnnotationApplied on a Machine has, as JSON, which labels and taints the fleet has put on the Machine's Node that a kubelet must
// not change: the keys of the labels, and key and effect of the taints. It is written before they are put on the Node. An
// annotation of the Node cannot record them: a kubelet can write the annotations of its Node.
const AnnotationApplied = FleetDomain + "applied"

// AnnotationDisruptions on a MachineDeployment, or on a MachineSet without a controller, holds as JSON the disruptions: the
// machines below it that may be replaced and still exist. A machine is named here before it is marked as failed, so that
// the next pass, of this holder or a later one, finishes what was begun and allows no disruption beside it.
const AnnotationDisruptions = FleetDomain + "disruptions"

// AnnotationOvershooting on a MachineSet means that the fleet has frozen it because machines were created beyond what was ordered. The
// value has the numbers, as a sentence for people. It is added and removed together with LabelFreeze.
const AnnotationOvershooting = FleetDomain + "overshooting"

// AnnotationMachineConfig on the template of a MachineDeployment, and on the Machines made of it, is the RenderedMachineConfig that they
// have.
const AnnotationMachineConfig = FleetDomain + "machine-config"

// AnnotationReleasedBy on a Machine or a MachineSet without a controller is the UID of its last one, which has released it because its
// labels did not match the selector any more. It is written with the release, and removed with an adoption.
const AnnotationReleasedBy = FleetDomain + "released-by"

// AnnotationCountMinReady on a MachineDeployment, or on a MachineSet without a controller, with a true value (as
// strconv.ParseBool reads it) has minReadySeconds count, which Machine Controller Manager ignores, and with a false one has it
// ignored. Without it, or with another value, the fleet's setting holds.
const AnnotationCountMinReady = FleetDomain + "count-min-ready-seconds"

// AnnotationComponentsTaint on a MachineDeployment, or on a MachineSet without a controller, with a false value (as
// strconv.ParseBool reads it) has Nodes that were updated in place not get TaintCriticalComponentsNotReady, and with a true one
// get it. Without it, or with another value, the fleet's setting holds.
const AnnotationComponentsTaint = FleetDomain + "critical-components-taint"

// AnnotationCircuitBreaker on a MachineDeployment, on a MachineSet without a controller, or on a Namespace sets the thresholds of the
// circuit breakers there: "not-ready=3,try-after=1h". Its keys are the names of the flags without "circuit-breaker-". A key that is
// omitted is that of the Namespace, else that of the flag.
const AnnotationCircuitBreaker = FleetDomain + "circuit-breaker"

// Annotations about orphans: VMs and other resources at a cloud that were made for a Machine and belong to none any more.
const (
	// AnnotationOrphans on a MachineClass has, as JSON, which resources of its cloud account are suspected to be orphans, and since when.
	// The next leader continues from there.
	AnnotationOrphans = FleetDomain + "orphans"
	// AnnotationDeleteOrphans on a MachineClass approves the deletion of orphans that are held. Users write it. Its value is from the
	// Event OrphansHeld, and approves exactly the orphans of that Event. It is removed when it was acted upon.
	AnnotationDeleteOrphans = FleetDomain + "delete-orphans"
	// AnnotationSweepRequested on a MachineClass has the leader search for orphans in the namespace of the class soon: a driver has found
	// several VMs of a Machine (OutOfRange), whose name is the value. The leader removes it when it has listed the cloud account of the
	// class. Without it the next sweep is the usual one.
	AnnotationSweepRequested = FleetDomain + "sweep-requested"
	// AnnotationOrphanDeletions on the Lease <fleet>-safety has, as JSON, the deletions of orphans within the last hour.
	AnnotationOrphanDeletions = FleetDomain + "orphan-deletions"
)

// LeaseSafety is the end of the name of the Lease with AnnotationOrphanDeletions, after the name of the fleet.
const LeaseSafety = "-safety"

// AnnotationRolling on a MachineSet reports whether the machines of its MachineDeployment are being replaced. While it is
// RollingTrue, the Nodes of the set's machines carry AnnotationScaleDownDisabled; when it has become RollingFalse, they do so
// no longer for the rollout's sake. Without it they are left as they are.
const AnnotationRolling = FleetDomain + "rolling"

// Values of AnnotationRolling.
const (
	RollingTrue  = "true"
	RollingFalse = "false"
)

// AnnotationReplacedBy on a MachineSet is the name of the MachineSet for which a rollout has last lowered its replicas. A MachineSet
// whose replicas were last changed for another reason, or raised, does not have it. It is the evidence of deletions.
const AnnotationReplacedBy = FleetDomain + "replaced-by"

// AnnotationUpdateTo on a Node that is a candidate for an update in place is the name of the MachineSet that its machine is
// transferred to when the update has succeeded: the one whose template was current when the Node was selected.
const AnnotationUpdateTo = FleetDomain + "update-to"

// AnnotationSelecting on a MachineDeployment holds as JSON the machines whose Nodes are about to be labelled with
// LabelSelectedForUpdate. A machine is named here before its Node is labelled, so that the next pass, of this holder or a
// later one, finishes what was begun and selects no other beside it. It is removed from the list when the label is
// observed.
const AnnotationSelecting = FleetDomain + "selecting"

// AnnotationStrategy on a MachineDeployment that names no strategy is the strategy that the fleet applies, RollingUpdate.
// It is set when the fleet begins to reconcile the MachineDeployment: Machine Controller Manager ignores such objects, and
// may have left one like that.
const AnnotationStrategy = FleetDomain + "strategy"

// LabelSlot is the slot label: the number of the slot, decimal and without padding, on the metadata of every root,
// MachineSet, Machine and Node of the slot. It never enters a template or a selector.
const LabelSlot = FleetDomain + "slot"

// The two Leases that Machine Controller Manager holds in each namespace that it serves. The fleet holds them in the
// namespaces that it serves, so that neither it nor a second fleet does.
const (
	// LeaseManager is held by the client that reconciles MachineDeployments and MachineSets.
	LeaseManager = "machine-controller-manager"
	// LeaseMachineController is held by the client that reconciles Machines.
	LeaseMachineController = "machine-controller"
)

// Labels of the fleet's Leases.
const (
	// LabelFleet is on every Lease of a fleet: the fleet's name.
	LabelFleet = FleetDomain + "fleet"
	// LabelLease is on session and slot Leases: LeaseOfSession or LeaseOfSlot.
	LabelLease = FleetDomain + "lease"
	// LeaseOfSession is the value of LabelLease on the Lease that proves that a session lives.
	LeaseOfSession = "session"
	// LeaseOfSlot is the value of LabelLease on the Lease that names the holder of a slot.
	LeaseOfSlot = "slot"
)

// Annotations of session Leases.
const (
	// AnnotationCreated is on a session Lease that was created, not updated, by the session that holds it. For some time
	// it proves nothing about earlier sessions of its replica: they may not have observed yet that their Lease was deleted. Its
	// value is that session.
	AnnotationCreated = FleetDomain + "created"
	// AnnotationPodUID is the UID of the pod that the session runs in, if it holds the lock in the pod's volume.
	AnnotationPodUID = FleetDomain + "pod-uid"
	// AnnotationCapacity is the share of the work for the replica in relation to others, as a positive decimal number.
	AnnotationCapacity = FleetDomain + "capacity"
	// AnnotationWeights are the weights of the slots that the session holds: "<slot>:<weight>,...".
	AnnotationWeights = FleetDomain + "weights"
	// AnnotationCounts reports, as JSON, how many machines of each zone of each target cluster are Ready and how many are
	// not, slot by slot. It stays when the Lease is emptied: it is the last that the replica has reported of its machines.
	AnnotationCounts = FleetDomain + "counts"
	// AnnotationConfirmed lists the UIDs of new slot Leases of which the session has nothing in flight: "<UID>,...".
	AnnotationConfirmed = FleetDomain + "confirmed"
	// AnnotationUnserved has the last time in which no session of the fleet lived, as its session knows it: "<from>/<to>", in RFC 3339.
	AnnotationUnserved = FleetDomain + "unserved"
	// AnnotationFitness has, as JSON, what the session can do beyond renewing its Lease: whether it acts, observes, and serves
	// each target cluster, and since when not.
	AnnotationFitness = FleetDomain + "fitness"
	// AnnotationAccounts has, as JSON, the accounts at clouds that do not answer the session, with the slots that need them, and
	// whether those of other sessions' reports answer it.
	AnnotationAccounts = FleetDomain + "accounts"
	// AnnotationLeaving reports that the session hands over its slots and exits. Its value is "true".
	AnnotationLeaving = FleetDomain + "leaving"
)

// Annotations of slot Leases.
const (
	// AnnotationAssignedReplica is the replica that should hold the slot. Only the leader writes it.
	AnnotationAssignedReplica = FleetDomain + "preferred-holder"
	// AnnotationHome is the replica that left the slot a short while ago and gets it back when it returns.
	AnnotationHome = FleetDomain + "home"
	// AnnotationWeight is the slot's weight when it was last released or acquired.
	AnnotationWeight = FleetDomain + "weight"
	// AnnotationLeaseUID is the UID of the Lease that carries it. A Lease without, or with another's, is new, restored or
	// copied: it is in quarantine until the leader has listed the sessions.
	AnnotationLeaseUID = FleetDomain + "lease-uid"
	// AnnotationQuarantine lists the sessions that must confirm, or be dead, before the slot can be acquired: "<session>,...".
	AnnotationQuarantine = FleetDomain + "quarantine"
)

// Annotations of the leader Lease: what is fixed when the fleet is installed. A session Lease records the same of its session.
const (
	// AnnotationSlots is the number of slots.
	AnnotationSlots = FleetDomain + "slots"
	// AnnotationShardBy is what of a root's key decides its slot: "deployment" or "namespace".
	AnnotationShardBy = FleetDomain + "shard-by"
	// AnnotationRingVersion is the version of the hash and of the consistent-hash table.
	AnnotationRingVersion = FleetDomain + "ring-version"
	// AnnotationFence and AnnotationTakeOver are the durations that have to fit each other in the whole fleet.
	AnnotationFence    = FleetDomain + "fence"
	AnnotationTakeOver = FleetDomain + "take-over"
)
