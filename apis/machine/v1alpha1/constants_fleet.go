package v1alpha1

// What the fleet records on objects that it creates, beyond the constants of Machine Controller
// Manager.
const (
	// AnnotationMachineUID is the UID of the Machine that the token is for.
	//
	// On: Secrets (bootstrap tokens). By: fleet. Value: UID. See:
	// operations/access.md#bootstrap-tokens.
	AnnotationMachineUID = FleetDomain + "machine-uid"
	// AnnotationTokenOf is the Machine that the token is for.
	//
	// On: Secrets (bootstrap tokens). By: fleet. Value: `<namespace>/<name>`. See:
	// operations/access.md#bootstrap-tokens.
	AnnotationTokenOf = FleetDomain + "token-of"
	// AnnotationCreateSent is on Machines for which a request to create a VM may have been sent to the
	// cloud, from before that until the VM's provider ID is recorded: a VM may exist although none is
	// known. Machines whose class exists are created with it.
	//
	// On: Machines. By: fleet. Value: `true`. See: troubleshooting.md.
	AnnotationCreateSent = FleetDomain + "create-sent"
	// AnnotationTokenLeft is on Machines that are being deleted and whose bootstrap token could not be
	// removed before that began, because the target cluster did not answer.
	//
	// On: Machines. By: fleet. Value: `true`. See: operations/access.md#bootstrap-tokens.
	AnnotationTokenLeft = FleetDomain + "token-left"
	// AnnotationBackoff is on Machines for whose VM calls of the cloud fail: when the next call may be
	// sent, what the wait after that is computed from, and which error codes were reported. Without it
	// the cloud is called at once.
	//
	// On: Machines. By: fleet; user removes. Value: JSON. See:
	// troubleshooting.md#a-machine-is-in-crashloopbackoff.
	AnnotationBackoff = FleetDomain + "backoff"
	// AnnotationSetAside is on Machines whose processing has panicked: how often, until when they are
	// not processed, and the message of the panic. Without it the machine is processed at once.
	//
	// On: Machines. By: fleet; user removes. Value: JSON. See:
	// troubleshooting.md#a-machine-is-set-aside.
	AnnotationSetAside = FleetDomain + "set-aside"
	// AnnotationPreserveBegan is on a Machine that is preserved: when that began.
	//
	// On: Machines. By: fleet. Value: RFC 3339. See: operations/preserve.md.
	AnnotationPreserveBegan = FleetDomain + "preserve-began"
	// AnnotationPreserveProlonged is on a Machine that is preserved: when its expiry time was last
	// prolonged by a time in which nothing could be done for it.
	//
	// On: Machines. By: fleet. Value: RFC 3339. See: operations/preserve.md.
	AnnotationPreserveProlonged = FleetDomain + "preserve-prolonged"
	// AnnotationReported is on Machines with a lasting problem that no status shows: the Event that
	// reported it last, as its reason and a checksum of its message. Each problem is reported once.
	// Those of several are separated by commas.
	//
	// On: Machines. By: fleet. Value: reasons with checksums, separated by commas. See: events.md.
	AnnotationReported = FleetDomain + "reported"
)

// What the pods of the Deployment have by which a namespace is switched on and off.
const (
	// SchedulingGateNever keeps a pod from ever being bound to a Node. The fleet reports the status of
	// pods that have it.
	SchedulingGateNever = FleetDomain + "never"
	// PodSwitchedOn is the type of a condition: its lastTransitionTime is when the namespace was
	// switched on, and its lastProbeTime when it was switched off before.
	PodSwitchedOn = FleetDomain + "switched-on"
)

// AnnotationMachine is the Machine that the Node is bound to. The Node gets it with its claim. It
// is the Machine's only while the provider IDs of both are the same, too: a kubelet can write this
// annotation.
//
// On: Nodes. By: fleet. Value: `<namespace>/<name>/<UID>`. See: security.md#nodes-and-vms.
const AnnotationMachine = FleetDomain + "machine"

// AnnotationApplied has which labels and taints the fleet has put on the Machine's Node that a
// kubelet must not change: the keys of the labels, and key and effect of the taints. It is written
// before they are put on the Node. An annotation of the Node cannot record them: a kubelet can
// write the annotations of its Node.
//
// On: Machines. By: fleet. Value: JSON. See: security.md#nodes-and-vms.
const AnnotationApplied = FleetDomain + "applied"

// AnnotationDisruptions holds the disruptions: the machines below the object that may be replaced
// and still exist. A machine is named here before it is marked as failed, so that the next pass, of
// this holder or a later one, finishes what was begun and allows no disruption next to it.
//
// On: MachineDeployments, MachineSets without a controller. By: fleet. Value: JSON. See:
// operations/safety.md#disruption-budgets.
const AnnotationDisruptions = FleetDomain + "disruptions"

// AnnotationOvershooting means that the fleet has frozen the MachineSet because machines were
// created beyond what was ordered. The value has the numbers, as a sentence for people. It is added
// and removed together with LabelFreeze.
//
// On: MachineSets. By: fleet. Value: text. See: operations/safety.md#overshooting.
const AnnotationOvershooting = FleetDomain + "overshooting"

// AnnotationMachineConfig is the RenderedMachineConfig that the Machines of the template have.
//
// On: templates of MachineDeployments, Machines. By: fleet, user. Value: name of a
// RenderedMachineConfig. See: operations/machine-config.md#with-machinedeployments.
const AnnotationMachineConfig = FleetDomain + "machine-config"

// AnnotationReleasedBy is the UID of the last controller of the object, which has released it
// because its labels did not match the selector. It is written with the release, and
// removed with an adoption.
//
// On: Machines, MachineSets. By: fleet. Value: UID. See:
// operations/rollouts.md#what-drifts-out-of-a-selector.
const AnnotationReleasedBy = FleetDomain + "released-by"

// AnnotationCountMinReady with a true value has minReadySeconds count, which Machine Controller
// Manager ignores, and with a false one has it ignored. Without it, or with another value, the
// fleet's setting holds.
//
// On: MachineDeployments, MachineSets without a controller. By: user. Value: a boolean, as
// strconv.ParseBool reads it. See: operations/configure.md.
const AnnotationCountMinReady = FleetDomain + "count-min-ready-seconds"

// AnnotationComponentsTaint with a false value has Nodes that were updated in place not get
// TaintCriticalComponentsNotReady, and with a true one get it. Without it, or with another value,
// the fleet's setting holds.
//
// On: MachineDeployments, MachineSets without a controller. By: user. Value: a boolean, as
// strconv.ParseBool reads it. See: operations/inplace.md#outside-gardener.
const AnnotationComponentsTaint = FleetDomain + "critical-components-taint"

// AnnotationCircuitBreaker sets the thresholds of the circuit breakers of the object. Its keys are
// the names of the flags without "circuit-breaker-". A key that is omitted is that of the
// Namespace, else that of the flag.
//
// On: MachineDeployments, MachineSets without a controller, Namespaces. By: user. Value:
// `not-ready=3,try-after=1h`. See: operations/configure.md#thresholds-of-circuit-breakers.
const AnnotationCircuitBreaker = FleetDomain + "circuit-breaker"

// Annotations about orphans: VMs and other resources at a cloud that were created for a Machine and
// belong to none any more.
const (
	// AnnotationOrphans has which resources of the cloud account of the MachineClass are suspected to
	// be orphans, and since when. The next leader continues from there.
	//
	// On: MachineClasses. By: fleet. Value: JSON. See: operations/safety.md#orphans-at-the-cloud.
	AnnotationOrphans = FleetDomain + "orphans"
	// AnnotationDeleteOrphans approves the deletion of orphans that are held. Its value is from the
	// Event OrphansHeld, and approves exactly the orphans of that Event. It is removed when it was
	// acted upon.
	//
	// On: MachineClasses. By: user. Value: from the message of the Event. See:
	// operations/safety.md#orphans-at-the-cloud.
	AnnotationDeleteOrphans = FleetDomain + "delete-orphans"
	// AnnotationSweepRequested has the leader search for orphans in the namespace of the class soon: a
	// driver has found several VMs of a Machine (OutOfRange), whose name is the value. The leader
	// removes it when it has listed the cloud account of the class. Without it the next sweep is the
	// usual one.
	//
	// On: MachineClasses. By: fleet. Value: name of a Machine. See:
	// operations/safety.md#orphans-at-the-cloud.
	AnnotationSweepRequested = FleetDomain + "sweep-requested"
	// AnnotationOrphanDeletions has the deletions of orphans within the last hour.
	//
	// On: Lease `<fleet>-safety`. By: fleet. Value: JSON. See:
	// operations/safety.md#orphans-at-the-cloud.
	AnnotationOrphanDeletions = FleetDomain + "orphan-deletions"
)

// LeaseSafety is the end of the name of the Lease with AnnotationOrphanDeletions, after the name of
// the fleet.
//
// On: namespace of the fleet. By: fleet. See: operations/safety.md#orphans-at-the-cloud.
const LeaseSafety = "-safety"

// AnnotationRolling reports whether the machines of the MachineDeployment are being replaced. While
// it is RollingTrue, the Nodes of the set's machines carry AnnotationScaleDownDisabled; when it has
// become RollingFalse, they do so no longer for the rollout's sake. Without it they are left as
// they are.
//
// On: MachineSets. By: fleet. Value: `true`, `false`. See:
// operations/rollouts.md#taints-and-annotations-of-nodes-during-a-rollout.
const AnnotationRolling = FleetDomain + "rolling"

// Values of AnnotationRolling.
const (
	RollingTrue  = "true"
	RollingFalse = "false"
)

// AnnotationReplacedBy is the MachineSet for which a rollout has last lowered its replicas. A
// MachineSet whose replicas were last changed for another reason, or raised, does not have it. It
// is the evidence of deletions.
//
// On: MachineSets. By: fleet. Value: name of a MachineSet. See:
// operations/safety.md#who-deleted-it-and-why.
const AnnotationReplacedBy = FleetDomain + "replaced-by"

// AnnotationUpdateTo is the MachineSet that the machine of the Node, a candidate for an update in
// place, is transferred to when the update has succeeded: the one whose template was current when
// the Node was selected.
//
// On: Nodes. By: fleet. Value: name of a MachineSet. See: operations/rollouts.md#updates-in-place.
const AnnotationUpdateTo = FleetDomain + "update-to"

// AnnotationSelecting holds the machines whose Nodes are about to be labelled with
// LabelSelectedForUpdate. A machine is named here before its Node is labelled, so that the next
// pass, of this holder or a later one, finishes what was begun and selects no other next to it. It
// is removed from the list when the label is observed.
//
// On: MachineDeployments. By: fleet. Value: JSON. See: operations/rollouts.md#updates-in-place.
const AnnotationSelecting = FleetDomain + "selecting"

// AnnotationStrategy is the strategy that the fleet applies to a MachineDeployment that names none.
// It is set when the fleet begins to reconcile the MachineDeployment: Machine Controller Manager
// ignores such objects, and may have left one like that.
//
// On: MachineDeployments. By: fleet. Value: `RollingUpdate`. See: operations/rollouts.md.
const AnnotationStrategy = FleetDomain + "strategy"

// AnnotationReplicas means that the chart does not set the number of replicas, because an
// autoscaler does.
//
// On: StatefulSet of the fleet. By: chart. Value: `external`. See:
// operations/scaling.md#the-autoscaler.
const AnnotationReplicas = FleetDomain + "replicas"

// LabelSlot is the slot label: the number of the slot, decimal and without padding, on the metadata
// of every root, MachineSet, Machine and Node of the slot. It never enters a template or a
// selector.
//
// On: MachineDeployments, MachineSets, Machines, Nodes. By: fleet. Value: number. See:
// operations/fleet.md#the-owner-of-an-object.
const LabelSlot = FleetDomain + "slot"

// The two Leases that Machine Controller Manager holds in each namespace that it serves. The fleet
// holds them in the namespaces that it serves, so that neither it nor a second fleet does.
const (
	// LeaseManager is held by the client that reconciles MachineDeployments and MachineSets.
	//
	// On: each namespace with Machines. By: fleet. See: operations/take-over.md.
	LeaseManager = "machine-controller-manager"
	// LeaseMachineController is held by the client that reconciles Machines.
	//
	// On: each namespace with Machines. By: fleet. See: operations/take-over.md.
	LeaseMachineController = "machine-controller"
)

// Labels of the fleet's Leases.
const (
	// LabelFleet is the name of the fleet.
	//
	// On: Leases of the fleet. By: fleet. Value: name of the fleet. See: operations/fleet.md.
	LabelFleet = FleetDomain + "fleet"
	// LabelLease distinguishes the Leases of sessions, of slots, and with reports.
	//
	// On: Leases of the fleet. By: fleet. Value: `session`, `slot`, `report`. See:
	// operations/fleet.md.
	LabelLease = FleetDomain + "lease"
	// LeaseOfSession is the value of LabelLease on the Lease that proves that a session lives.
	LeaseOfSession = "session"
	// LeaseOfReport is the value of LabelLease on the Lease with what a replica reports about its
	// slots and machines.
	LeaseOfReport = "report"
	// LeaseOfSlot is the value of LabelLease on the Lease that names the holder of a slot.
	LeaseOfSlot = "slot"
)

// Annotations of session Leases.
const (
	// AnnotationCreated is on a session Lease that was created, not updated, by the session that holds
	// it. For some time it proves nothing about earlier sessions of its replica: they may not have
	// observed yet that their Lease was deleted. Its value is that session.
	//
	// On: Leases of sessions. By: fleet. Value: session. See:
	// limits.md#leases-that-are-changed-by-hand.
	AnnotationCreated = FleetDomain + "created"
	// AnnotationPodUID is the UID of the pod that the session runs in, if it holds the lock in the
	// pod's volume.
	//
	// On: Leases of sessions. By: fleet. Value: UID. See: limits.md#the-file-lock.
	AnnotationPodUID = FleetDomain + "pod-uid"
	// AnnotationCapacity is the share of the work for the replica in relation to others.
	//
	// On: Leases of sessions. By: fleet. Value: positive decimal number. See: operations/sizing.md.
	AnnotationCapacity = FleetDomain + "capacity"
	// AnnotationConfirmed lists the UIDs of new slot Leases of which the session has nothing in
	// flight.
	//
	// On: Leases of sessions. By: fleet. Value: `<UID>,...`. See:
	// limits.md#leases-that-are-changed-by-hand.
	AnnotationConfirmed = FleetDomain + "confirmed"
	// AnnotationUnserved has the last time in which no session of the fleet lived, as its session
	// knows it.
	//
	// On: Leases of sessions. By: fleet. Value: `<from>/<to>`, each RFC 3339. See:
	// limits.md#time-without-a-replica.
	AnnotationUnserved = FleetDomain + "unserved"
	// AnnotationFitness has what the session can do beyond renewing its Lease: whether it acts,
	// observes, and serves each target cluster, and since when not.
	//
	// On: Leases of sessions. By: fleet. Value: JSON. See: operations/fleet.md#a-replica-is-unfit.
	AnnotationFitness = FleetDomain + "fitness"
	// AnnotationAccounts has the accounts at clouds that do not answer the session, with the slots
	// that need them, and whether those of other sessions' reports answer it.
	//
	// On: Leases of sessions. By: fleet. Value: JSON. See:
	// operations/fleet.md#a-replica-does-not-reach-a-cloud.
	AnnotationAccounts = FleetDomain + "accounts"
	// AnnotationLeaving reports that the session hands over its slots and exits.
	//
	// On: Leases of sessions. By: fleet. Value: `true`. See: operations/fleet.md.
	AnnotationLeaving = FleetDomain + "leaving"
)

// Annotations of Leases with reports.
const (
	// AnnotationWeights are the weights of the slots that the session on the Lease holds.
	//
	// On: Leases with reports. By: fleet. Value: `<slot>:<weight>,...`. See:
	// operations/fleet.md#what-a-replica-reports.
	AnnotationWeights = FleetDomain + "weights"
	// AnnotationCounts reports how many machines of each zone of each target cluster are Ready and how
	// many are not, slot by slot. It is the last that the replica has reported of its machines, also
	// when it has ended.
	//
	// On: Leases with reports. By: fleet. Value: JSON. See:
	// limits.md#circuit-breakers-use-counts-that-are-some-seconds-old.
	AnnotationCounts = FleetDomain + "counts"
)

// Annotations of slot Leases.
const (
	// AnnotationAssignedReplica is the replica that should hold the slot. Only the leader writes it.
	//
	// On: Leases of slots. By: fleet. Value: name of a replica. See:
	// operations/fleet.md#a-slot-has-no-holder.
	AnnotationAssignedReplica = FleetDomain + "preferred-holder"
	// AnnotationHome is the replica that left the slot a short while ago and gets it back when it
	// returns.
	//
	// On: Leases of slots. By: fleet. Value: name of a replica. See: operations/fleet.md.
	AnnotationHome = FleetDomain + "home"
	// AnnotationWeight is the slot's weight when it was last released or acquired.
	//
	// On: Leases of slots. By: fleet. Value: number. See: operations/fleet.md.
	AnnotationWeight = FleetDomain + "weight"
	// AnnotationLeaseUID is the UID of the Lease that carries it. A Lease without, or with another's,
	// is new, restored or copied: it is in quarantine until the leader has listed the sessions.
	//
	// On: Leases of slots. By: fleet. Value: UID. See: limits.md#leases-that-are-changed-by-hand.
	AnnotationLeaseUID = FleetDomain + "lease-uid"
	// AnnotationQuarantine lists the sessions that must confirm, or be dead, before the slot can be
	// acquired.
	//
	// On: Leases of slots. By: fleet. Value: `<session>,...`. See:
	// limits.md#leases-that-are-changed-by-hand.
	AnnotationQuarantine = FleetDomain + "quarantine"
)

// Annotations of the leader Lease: what is fixed when the fleet is installed. A session Lease
// records the same of its session.
const (
	// AnnotationSlots is the number of slots.
	//
	// On: Leases of the leader and of sessions. By: fleet. Value: number. See:
	// operations/disaster.md#the-number-of-slots-is-wrong.
	AnnotationSlots = FleetDomain + "slots"
	// AnnotationShardBy names the part of a root's key that decides its slot.
	//
	// On: Leases of the leader and of sessions. By: fleet. Value: `deployment`, `namespace`. See:
	// operations/disaster.md#the-number-of-slots-is-wrong.
	AnnotationShardBy = FleetDomain + "shard-by"
	// AnnotationRingVersion is the version of the hash and of the consistent-hash table.
	//
	// On: Leases of the leader and of sessions. By: fleet. Value: number. See:
	// limits.md#a-wrong-number-of-slots-and-other-settings-that-must-agree.
	AnnotationRingVersion = FleetDomain + "ring-version"
	// AnnotationFence is the time after which a session without a renewal may start nothing more. All
	// sessions have the same.
	//
	// On: Leases of the leader and of sessions. By: fleet. Value: Go duration. See:
	// limits.md#a-wrong-number-of-slots-and-other-settings-that-must-agree.
	AnnotationFence = FleetDomain + "fence"
	// AnnotationTakeOver is the time after which the slots of a session without a renewal are taken
	// over. All sessions have the same.
	//
	// On: Leases of the leader and of sessions. By: fleet. Value: Go duration. See:
	// limits.md#a-wrong-number-of-slots-and-other-settings-that-must-agree.
	AnnotationTakeOver = FleetDomain + "take-over"
)
