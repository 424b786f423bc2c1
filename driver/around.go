package driver

import (
	"context"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Call is a call of a driver, as an Interceptor gets it.
type Call struct {
	Op Op
	// Method is the name of the method.
	Method string
	// Target is the part that the request has. Of a resource that is deleted, the Machine has
	// namespace, name and UID only.
	Target Target
	// UserData is that of a create.
	UserData []byte

	// texts are those of the answer that a driver may compose of the cloud's.
	texts []*string
}

// Interceptor sends a call by next, or returns an error instead.
type Interceptor func(ctx context.Context, c Call, next func(context.Context) error) error

// Around returns a driver with an Interceptor around each call that may send requests.
// GetUnknownFields and Scope send none.
func Around(d Driver, f Interceptor) Driver { return around{d, f} }

type around struct {
	next Driver
	f    Interceptor
}

var (
	_ Driver  = around{}
	_ Sweeper = around{}
)

// Unwrap returns the driver inside.
func (a around) Unwrap() Driver { return a.next }

// intercept sends a call through an Interceptor, and stores the answer.
func intercept[Req, Resp any](
	ctx context.Context, f Interceptor, c Call, call func(context.Context, Req) (Resp, error), req Req, resp *Resp,
) error {
	return f(ctx, c, func(ctx context.Context) (err error) {
		*resp, err = call(ctx, req)
		return err
	})
}

// GetUnknownFields calls the driver.
func (a around) GetUnknownFields(ctx context.Context, req GetUnknownFieldsRequest) (GetUnknownFieldsResponse, error) {
	return a.next.GetUnknownFields(ctx, req)
}

// CreateMachine calls the driver through the Interceptor.
func (a around) CreateMachine(ctx context.Context, req CreateMachineRequest) (resp CreateMachineResponse, err error) {
	c := Call{
		Op: OpCreate, Method: "CreateMachine", Target: req.Target, UserData: req.UserData, texts: []*string{&resp.LastKnownState, &resp.State},
	}
	err = intercept(ctx, a.f, c, a.next.CreateMachine, req, &resp)
	return resp, err
}

// InitializeMachine calls the driver through the Interceptor.
func (a around) InitializeMachine(ctx context.Context, req InitializeMachineRequest) (resp InitializeMachineResponse, err error) {
	c := Call{Op: OpInitialize, Method: "InitializeMachine", Target: req.Target, texts: []*string{&resp.State}}
	err = intercept(ctx, a.f, c, a.next.InitializeMachine, req, &resp)
	return resp, err
}

// DeleteMachine calls the driver through the Interceptor.
func (a around) DeleteMachine(ctx context.Context, req DeleteMachineRequest) (resp DeleteMachineResponse, err error) {
	c := Call{Op: OpDelete, Method: "DeleteMachine", Target: req.Target, texts: []*string{&resp.LastKnownState}}
	err = intercept(ctx, a.f, c, a.next.DeleteMachine, req, &resp)
	return resp, err
}

// GetMachineStatus calls the driver through the Interceptor.
func (a around) GetMachineStatus(ctx context.Context, req GetMachineStatusRequest) (resp GetMachineStatusResponse, err error) {
	c := Call{Op: OpStatus, Method: "GetMachineStatus", Target: req.Target, texts: []*string{&resp.State}}
	err = intercept(ctx, a.f, c, a.next.GetMachineStatus, req, &resp)
	return resp, err
}

// ListMachines calls the driver through the Interceptor.
func (a around) ListMachines(ctx context.Context, req ListMachinesRequest) (resp ListMachinesResponse, err error) {
	c := Call{Op: OpList, Method: "ListMachines", Target: Target{Class: req.Class, Secret: req.Secret}}
	err = intercept(ctx, a.f, c, a.next.ListMachines, req, &resp)
	return resp, err
}

// GetVolumeIDs calls the driver through the Interceptor.
func (a around) GetVolumeIDs(ctx context.Context, req GetVolumeIDsRequest) (resp GetVolumeIDsResponse, err error) {
	err = intercept(ctx, a.f, Call{Op: OpVolumeIDs, Method: "GetVolumeIDs"}, a.next.GetVolumeIDs, req, &resp)
	return resp, err
}

// Scope calls the driver.
func (a around) Scope(req ScopeRequest) (string, error) {
	sweeper, _ := SweeperOf(a.next)
	return sweeper.Scope(req)
}

// ListResources calls the driver through the Interceptor.
func (a around) ListResources(ctx context.Context, req ListResourcesRequest) (resp ListResourcesResponse, err error) {
	sweeper, _ := SweeperOf(a.next)
	c := Call{Op: OpResources, Method: "ListResources", Target: Target{Class: req.Class, Secret: req.Secret}}
	err = intercept(ctx, a.f, c, sweeper.ListResources, req, &resp)
	return resp, err
}

// DeleteResource calls the driver through the Interceptor.
func (a around) DeleteResource(ctx context.Context, req DeleteResourceRequest) (resp DeleteResourceResponse, err error) {
	sweeper, _ := SweeperOf(a.next)
	createdFor := &v1alpha1.Machine{}
	createdFor.Namespace, createdFor.Name, createdFor.UID = req.Resource.Namespace, req.Resource.Machine, req.Resource.MachineUID
	c := Call{Op: OpSweep, Method: "DeleteResource", Target: Target{Machine: createdFor, Class: req.Class, Secret: req.Secret}}
	err = intercept(ctx, a.f, c, sweeper.DeleteResource, req, &resp)
	return resp, err
}
