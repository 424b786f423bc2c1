package autoscaler

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

// The classes of errors of instances.
const (
	classOutOfResources = 1
	classOther          = 99
)

func decodeNode(node *externalgrpc.ExternalGrpcNode) groups.Node {
	return groups.Node{Name: node.GetName(), ProviderID: node.GetProviderID(), Annotations: node.GetAnnotations()}
}

func encodeGroup(g groups.Group) *externalgrpc.NodeGroup {
	return &externalgrpc.NodeGroup{Id: g.ID, MinSize: g.Min, MaxSize: g.Max, Debug: g.Debug}
}

func encodeInstance(i groups.Instance) *externalgrpc.Instance {
	state := externalgrpc.InstanceStatus_unspecified
	switch i.State {
	case groups.Running:
		state = externalgrpc.InstanceStatus_instanceRunning
	case groups.Creating:
		state = externalgrpc.InstanceStatus_instanceCreating
	case groups.Deleting:
		state = externalgrpc.InstanceStatus_instanceDeleting
	}
	// A client reads the code of the error in any case: one without a code is none.
	failure := &externalgrpc.InstanceErrorInfo{}
	if i.Failure != nil {
		failure.ErrorCode, failure.ErrorMessage, failure.InstanceErrorClass = i.Failure.Code, i.Failure.Message, classOther
		if i.Failure.OutOfResources {
			failure.InstanceErrorClass = classOutOfResources
		}
	}
	return &externalgrpc.Instance{Id: i.ID, Status: &externalgrpc.InstanceStatus{InstanceState: state, ErrorInfo: failure}}
}

// encodeOptions returns the client's defaults with what is set for a group, for all releases.
func encodeOptions(set validation.NodeGroup, defaults *externalgrpc.NodeGroupAutoscalingOptions) *externalgrpc.NodeGroupAutoscalingOptions {
	o, ok := proto.Clone(defaults).(*externalgrpc.NodeGroupAutoscalingOptions)
	if !ok || defaults == nil {
		o = &externalgrpc.NodeGroupAutoscalingOptions{}
	}
	override(&o.ScaleDownUtilizationThreshold, set.UtilizationThreshold)
	override(&o.ScaleDownGpuUtilizationThreshold, set.GPUUtilizationThreshold)
	override(&o.ZeroOrMaxNodeScaling, set.ZeroOrMax)
	override(&o.AllowNonAtomicScaleUpToMax, set.AllowNonAtomicScaleUpToMax)
	override(&o.IgnoreDaemonSetsUtilization, set.IgnoreDaemonSetsOfUsage)
	overrideDuration(&o.ScaleDownUnneededDuration, &o.ScaleDownUnneededTime, set.UnneededTime)
	overrideDuration(&o.ScaleDownUnreadyDuration, &o.ScaleDownUnreadyTime, set.UnreadyTime)
	overrideDuration(&o.MaxNodeProvisionDuration, &o.MaxNodeProvisionTime, set.MaxProvisionTime)
	if set.MaxStartupTime != nil {
		o.MaxNodeStartupDuration = durationpb.New(*set.MaxStartupTime)
	}
	return o
}

func override[T any](option, set *T) {
	if set != nil {
		*option = *set
	}
}

// overrideDuration sets both forms of a duration, so that a client of any release finds its own.
// What it has sent as a default is in one of them.
func overrideDuration(newer **durationpb.Duration, older **externalgrpc.DurationOfOlderReleases, set *time.Duration) {
	if set != nil {
		*newer, *older = durationpb.New(*set), &externalgrpc.DurationOfOlderReleases{Duration: set.Nanoseconds()}
	}
}
