package v1alpha1

// AutoscalerDomain is the prefix of the annotations and labels by which people configure node
// groups for the cluster-autoscaler's provider externalgrpc. Only people write them.
const AutoscalerDomain = "autoscaler.machine.sapcloud.io/"

// The annotations that make a MachineDeployment a node group.
const (
	// AnnotationMaxSize is the largest number of replicas that the cluster-autoscaler may set. With it
	// the MachineDeployment is a node group; with an invalid value it is none.
	//
	// On: MachineDeployments. By: user. Value: number. See: autoscaler.md#node-groups.
	AnnotationMaxSize = AutoscalerDomain + "max-size"
	// AnnotationMinSize is the smallest number of replicas that the cluster-autoscaler may set, at
	// most that of AnnotationMaxSize. Without it that is 0.
	//
	// On: MachineDeployments. By: user. Value: number. See: autoscaler.md#node-groups.
	AnnotationMinSize = AutoscalerDomain + "min-size"
)

// The options of a node group, each instead of the default of the cluster-autoscaler. An invalid
// value counts as none.
const (
	// AnnotationUtilizationThreshold is the share of its allocatable resources below which a Node is
	// not needed.
	//
	// On: MachineDeployments. By: user. Value: number from 0 to 1. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationUtilizationThreshold = AutoscalerDomain + "scale-down-utilization-threshold"
	// AnnotationGPUUtilizationThreshold is the same for Nodes with accelerators.
	//
	// On: MachineDeployments. By: user. Value: number from 0 to 1. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationGPUUtilizationThreshold = AutoscalerDomain + "scale-down-gpu-utilization-threshold"
	// AnnotationUnneededTime is how long a Node is not needed before it is removed.
	//
	// On: MachineDeployments. By: user. Value: Go duration. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationUnneededTime = AutoscalerDomain + "scale-down-unneeded-time"
	// AnnotationUnreadyTime is how long a Node that is not ready is not needed before it is removed.
	//
	// On: MachineDeployments. By: user. Value: Go duration. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationUnreadyTime = AutoscalerDomain + "scale-down-unready-time"
	// AnnotationMaxProvisionTime is how long a machine may take to become a Node.
	//
	// On: MachineDeployments. By: user. Value: Go duration. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationMaxProvisionTime = AutoscalerDomain + "max-node-provision-time"
	// AnnotationMaxStartupTime is how long a Node may take to become ready.
	//
	// On: MachineDeployments. By: user. Value: Go duration. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationMaxStartupTime = AutoscalerDomain + "max-node-startup-time"
	// AnnotationZeroOrMax with a true value has the cluster-autoscaler scale the group to 0 or to its
	// maximum only.
	//
	// On: MachineDeployments. By: user. Value: a boolean, as strconv.ParseBool reads it. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationZeroOrMax = AutoscalerDomain + "zero-or-max-node-scaling"
	// AnnotationNonAtomicScaleUp with a true value allows a group with AnnotationZeroOrMax to have
	// other sizes for a while.
	//
	// On: MachineDeployments. By: user. Value: a boolean, as strconv.ParseBool reads it. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationNonAtomicScaleUp = AutoscalerDomain + "allow-non-atomic-scale-up-to-max"
	// AnnotationIgnoreDaemonSets with a true value has pods of DaemonSets not count for the
	// utilization of a Node, and with a false one has them count.
	//
	// On: MachineDeployments. By: user. Value: a boolean, as strconv.ParseBool reads it. See:
	// autoscaler.md#options-of-a-node-group.
	AnnotationIgnoreDaemonSets = AutoscalerDomain + "ignore-daemonsets-utilization"
)

// GardenerAutoscalerDomain is the prefix of the same options as Gardener's fork of the
// cluster-autoscaler reads them. They count where the fleet's own are not there.
//
// On: MachineDeployments. By: user. See: autoscaler.md#options-of-a-node-group.
const GardenerAutoscalerDomain = "autoscaler.gardener.cloud/"

// LabelAccelerator is the kind of the accelerators of a Node. The cluster-autoscaler counts a Node
// with it as not ready until it has these.
//
// On: Nodes. By: user, in the nodeTemplate. Value: text. See: autoscaler.md#accelerators.
const LabelAccelerator = AutoscalerDomain + "accelerator"

// VerbAutoscale is the verb of RBAC on MachineDeployments that an identity needs in its namespace
// to be served as the namespace's autoscaler.
const VerbAutoscale = "autoscale"
