package plugin

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// service translates calls of the protocol to those of a driver. A request that cannot be decoded
// is an error of the caller, and no failure of the driver.
type service struct {
	driverv1.UnimplementedDriverServer

	driver  driver.Driver
	sweeper driver.Sweeper
}

// newService returns the service of a driver, whose answers have no secrets.
func newService(d driver.Driver) *service {
	s := &service{driver: driver.Redacted(d)}
	s.sweeper, _ = driver.SweeperOf(s.driver)
	return s
}

// undecodable is the status of a call whose request cannot be decoded.
func undecodable(err error) error { return status.Errorf(codes.InvalidArgument, "%v", err) }

// GetUnknownFields calls the driver.
func (s *service) GetUnknownFields(ctx context.Context, req *driverv1.GetUnknownFieldsRequest) (*driverv1.GetUnknownFieldsResponse, error) {
	class, err := fromClass(req.GetClass())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.driver.GetUnknownFields(ctx, driver.GetUnknownFieldsRequest{Class: class})
	return &driverv1.GetUnknownFieldsResponse{Fields: resp.Fields, Refused: resp.Refused, Failure: toFailure(driver.OpFields, err)}, nil
}

// CreateMachine calls the driver.
func (s *service) CreateMachine(ctx context.Context, req *driverv1.CreateMachineRequest) (*driverv1.CreateMachineResponse, error) {
	target, err := fromTarget(req.GetTarget())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.driver.CreateMachine(ctx, driver.CreateMachineRequest{Target: target, UserData: req.GetUserData()})
	return &driverv1.CreateMachineResponse{Vm: toVM(resp.VM), LastKnownState: resp.LastKnownState, Failure: toFailure(driver.OpCreate, err)},
		nil
}

// InitializeMachine calls the driver.
func (s *service) InitializeMachine(
	ctx context.Context, req *driverv1.InitializeMachineRequest,
) (*driverv1.InitializeMachineResponse, error) {
	target, err := fromTarget(req.GetTarget())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.driver.InitializeMachine(ctx, driver.InitializeMachineRequest{Target: target})
	return &driverv1.InitializeMachineResponse{Vm: toVM(resp.VM), Failure: toFailure(driver.OpInitialize, err)}, nil
}

// DeleteMachine calls the driver.
func (s *service) DeleteMachine(ctx context.Context, req *driverv1.DeleteMachineRequest) (*driverv1.DeleteMachineResponse, error) {
	target, err := fromTarget(req.GetTarget())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.driver.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: target})
	return &driverv1.DeleteMachineResponse{
		Gone: resp.Gone, LastKnownState: resp.LastKnownState, Left: resp.Left, Owned: resp.Owned, Failure: toFailure(driver.OpDelete, err),
	}, nil
}

// GetMachineStatus calls the driver.
func (s *service) GetMachineStatus(ctx context.Context, req *driverv1.GetMachineStatusRequest) (*driverv1.GetMachineStatusResponse, error) {
	target, err := fromTarget(req.GetTarget())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.driver.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: target})
	return &driverv1.GetMachineStatusResponse{Vm: toVM(resp.VM), Left: resp.Left, Failure: toFailure(driver.OpStatus, err)}, nil
}

// ListMachines calls the driver, and sends its answer in pages.
func (s *service) ListMachines(req *driverv1.ListMachinesRequest, stream grpc.ServerStreamingServer[driverv1.ListMachinesResponse]) error {
	class, err := fromClass(req.GetClass())
	if err != nil {
		return undecodable(err)
	}
	resp, err := s.driver.ListMachines(stream.Context(), driver.ListMachinesRequest{Class: class, Secret: req.GetSecret()})
	if err != nil {
		return stream.Send(&driverv1.ListMachinesResponse{Failure: toFailure(driver.OpList, err)})
	}
	for ids := range slices.Chunk(slices.Collect(maps.Keys(resp.Machines)), listPage) {
		page := make(map[string]string, len(ids))
		for _, id := range ids {
			page[id] = resp.Machines[id]
		}
		if err := stream.Send(&driverv1.ListMachinesResponse{Machines: page}); err != nil {
			return err
		}
	}
	return nil
}

// GetVolumeIDs calls the driver.
func (s *service) GetVolumeIDs(ctx context.Context, req *driverv1.GetVolumeIDsRequest) (*driverv1.GetVolumeIDsResponse, error) {
	volumes, err := fromVolumes(req.GetVolumes())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.driver.GetVolumeIDs(ctx, driver.GetVolumeIDsRequest{Volumes: volumes})
	return &driverv1.GetVolumeIDsResponse{Ids: resp.IDs, Failure: toFailure(driver.OpVolumeIDs, err)}, nil
}

// Scope calls the driver.
func (s *service) Scope(_ context.Context, req *driverv1.ScopeRequest) (*driverv1.ScopeResponse, error) {
	scope, err := fromScope(req)
	if err != nil {
		return nil, undecodable(err)
	}
	text, err := s.sweeper.Scope(scope)
	return &driverv1.ScopeResponse{Scope: text, Failure: toFailure(driver.OpScope, err)}, nil
}

// ListResources calls the driver.
func (s *service) ListResources(ctx context.Context, req *driverv1.ListResourcesRequest) (*driverv1.ListResourcesResponse, error) {
	scope, err := fromScope(req.GetScope())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.sweeper.ListResources(ctx, driver.ListResourcesRequest{ScopeRequest: scope, Continue: req.GetPageToken()})
	answer := &driverv1.ListResourcesResponse{NextPageToken: resp.Continue, Failure: toFailure(driver.OpResources, err)}
	for _, r := range resp.Items {
		answer.Items = append(answer.Items, toResource(r))
	}
	return answer, nil
}

// DeleteResource calls the driver.
func (s *service) DeleteResource(ctx context.Context, req *driverv1.DeleteResourceRequest) (*driverv1.DeleteResourceResponse, error) {
	scope, err := fromScope(req.GetScope())
	if err != nil {
		return nil, undecodable(err)
	}
	resp, err := s.sweeper.DeleteResource(ctx, driver.DeleteResourceRequest{ScopeRequest: scope, Resource: fromResource(req.GetResource())})
	return &driverv1.DeleteResourceResponse{Gone: resp.Gone, Failure: toFailure(driver.OpSweep, err)}, nil
}
