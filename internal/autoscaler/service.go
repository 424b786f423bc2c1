package autoscaler

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

// service answers calls of clients that have passed the checks: their identity is in the context.
type service struct {
	externalgrpc.UnimplementedCloudProviderServer

	reader *reader
	writer *writer
}

// read returns the client's namespace as it is known.
func (s *service) read(ctx context.Context) (*groups.Namespace, error) {
	return s.reader.namespace(ctx, clientOf(ctx).namespace, maxAge)
}

// Refresh reads the namespace, unless it was read a moment ago.
func (s *service) Refresh(ctx context.Context, _ *externalgrpc.RefreshRequest) (*externalgrpc.RefreshResponse, error) {
	if _, err := s.reader.namespace(ctx, clientOf(ctx).namespace, refreshAge); err != nil {
		return nil, err
	}
	return &externalgrpc.RefreshResponse{}, nil
}

// Cleanup does nothing: a client has no state here.
func (s *service) Cleanup(context.Context, *externalgrpc.CleanupRequest) (*externalgrpc.CleanupResponse, error) {
	return &externalgrpc.CleanupResponse{}, nil
}

// NodeGroups returns all node groups.
func (s *service) NodeGroups(ctx context.Context, _ *externalgrpc.NodeGroupsRequest) (*externalgrpc.NodeGroupsResponse, error) {
	namespace, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	answer := &externalgrpc.NodeGroupsResponse{}
	for _, g := range namespace.Groups() {
		answer.NodeGroups = append(answer.NodeGroups, encodeGroup(g))
	}
	return answer, nil
}

// NodeGroupForNode returns the group of a Node, or one without an ID.
func (s *service) NodeGroupForNode(
	ctx context.Context, request *externalgrpc.NodeGroupForNodeRequest,
) (*externalgrpc.NodeGroupForNodeResponse, error) {
	namespace, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	g, _ := namespace.GroupOf(decodeNode(request.GetNode()))
	return &externalgrpc.NodeGroupForNodeResponse{NodeGroup: encodeGroup(g)}, nil
}

// GPULabel returns the label of Nodes with accelerators.
func (s *service) GPULabel(context.Context, *externalgrpc.GPULabelRequest) (*externalgrpc.GPULabelResponse, error) {
	return &externalgrpc.GPULabelResponse{Label: v1alpha1.LabelAccelerator}, nil
}

// GetAvailableGPUTypes returns the values of that label in the groups' templates.
func (s *service) GetAvailableGPUTypes(
	ctx context.Context, _ *externalgrpc.GetAvailableGPUTypesRequest,
) (*externalgrpc.GetAvailableGPUTypesResponse, error) {
	namespace, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	answer := &externalgrpc.GetAvailableGPUTypesResponse{GpuTypes: map[string]*anypb.Any{}}
	for _, kind := range namespace.Accelerators() {
		if answer.GpuTypes[kind], err = anypb.New(wrapperspb.String(kind)); err != nil {
			return nil, status.Errorf(codes.Internal, "encode %q: %v", kind, err)
		}
	}
	return answer, nil
}

// NodeGroupTargetSize returns the replicas of a group.
func (s *service) NodeGroupTargetSize(
	ctx context.Context, request *externalgrpc.NodeGroupTargetSizeRequest,
) (*externalgrpc.NodeGroupTargetSizeResponse, error) {
	namespace, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	size, err := namespace.TargetSize(request.GetId())
	if err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupTargetSizeResponse{TargetSize: size}, nil
}

// NodeGroupIncreaseSize raises the replicas of a group.
func (s *service) NodeGroupIncreaseSize(
	ctx context.Context, request *externalgrpc.NodeGroupIncreaseSizeRequest,
) (*externalgrpc.NodeGroupIncreaseSizeResponse, error) {
	if err := s.writer.increase(ctx, clientOf(ctx), request.GetId(), request.GetDelta()); err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupIncreaseSizeResponse{}, nil
}

// NodeGroupDeleteNodes deletes Nodes, and lowers the replicas of their group by their number.
func (s *service) NodeGroupDeleteNodes(
	ctx context.Context, request *externalgrpc.NodeGroupDeleteNodesRequest,
) (*externalgrpc.NodeGroupDeleteNodesResponse, error) {
	nodes := make([]groups.Node, len(request.GetNodes()))
	for i, node := range request.GetNodes() {
		nodes[i] = decodeNode(node)
	}
	if err := s.writer.deleteNodes(ctx, clientOf(ctx), request.GetId(), nodes); err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupDeleteNodesResponse{}, nil
}

// NodeGroupDecreaseTargetSize lowers the replicas of a group by machines that have no Node.
func (s *service) NodeGroupDecreaseTargetSize(
	ctx context.Context, request *externalgrpc.NodeGroupDecreaseTargetSizeRequest,
) (*externalgrpc.NodeGroupDecreaseTargetSizeResponse, error) {
	if err := s.writer.decrease(ctx, clientOf(ctx), request.GetId(), request.GetDelta()); err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupDecreaseTargetSizeResponse{}, nil
}

// NodeGroupNodes returns the instances of a group.
func (s *service) NodeGroupNodes(
	ctx context.Context, request *externalgrpc.NodeGroupNodesRequest,
) (*externalgrpc.NodeGroupNodesResponse, error) {
	namespace, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	instances, err := namespace.Instances(request.GetId())
	if err != nil {
		return nil, err
	}
	answer := &externalgrpc.NodeGroupNodesResponse{}
	for _, instance := range instances {
		answer.Instances = append(answer.Instances, encodeInstance(instance))
	}
	return answer, nil
}

// NodeGroupTemplateNodeInfo returns a Node like the next one of a group.
func (s *service) NodeGroupTemplateNodeInfo(
	ctx context.Context, request *externalgrpc.NodeGroupTemplateNodeInfoRequest,
) (*externalgrpc.NodeGroupTemplateNodeInfoResponse, error) {
	namespace, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	node, err := namespace.Template(request.GetId())
	if err != nil {
		return nil, err
	}
	encoded, err := node.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode the template of %s: %v", request.GetId(), err)
	}
	return &externalgrpc.NodeGroupTemplateNodeInfoResponse{NodeInfo: encoded, NodeBytes: encoded}, nil
}

// NodeGroupGetOptions returns the options of a group. Where none is set the client has to use its
// own, which may have fields that are not known here.
func (s *service) NodeGroupGetOptions(
	ctx context.Context, request *externalgrpc.NodeGroupAutoscalingOptionsRequest,
) (*externalgrpc.NodeGroupAutoscalingOptionsResponse, error) {
	namespace, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	set, err := namespace.Options(request.GetId())
	if err != nil {
		return nil, err
	}
	if !set.HasOptions() {
		return nil, status.Errorf(codes.Unimplemented, "MachineDeployment %s sets no options by annotations", request.GetId())
	}
	return &externalgrpc.NodeGroupAutoscalingOptionsResponse{NodeGroupAutoscalingOptions: encodeOptions(set, request.GetDefaults())}, nil
}
