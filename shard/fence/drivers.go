package fence

import (
	"context"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Driver puts the Fence before every call of a driver. A refusal is driver.Canceled, with a *RefusedError as its cause. A call
// that only reads may be made under no ownership; under one it is counted, and refused, like the others.
func (f *Fence) Driver(d driver.Driver) driver.Driver { return &fencedDriver{fence: f, next: d} }

type fencedDriver struct {
	fence *Fence
	next  driver.Driver
}

var (
	_ driver.Driver  = (*fencedDriver)(nil)
	_ driver.Sweeper = (*fencedDriver)(nil)
)

// Unwrap returns the driver below the Fence.
func (d *fencedDriver) Unwrap() driver.Driver { return d.next }

// fenced calls a driver if it may be called.
func fenced[Req, Resp any](ctx context.Context, f *Fence, op driver.Op, a action, machine string, do func(context.Context, Req) (Resp, error), req Req) (Resp, error) {
	owned := ownershipOf(ctx)
	if owned.kind == none && a == read {
		return do(ctx, req)
	}
	what := string(op)
	if machine != "" {
		what += " " + machine
	}
	done, why := f.begin(owned, a)
	if why != "" {
		var nothing Resp
		return nothing, &driver.Error{Code: driver.Canceled, Op: op, Err: f.refuse(what, owned, why)}
	}
	defer done()
	late, answered := f.faultPoint.here(ctx, what, owned)
	resp, err := do(late, req)
	answered()
	return resp, err
}

func nameOf(t driver.Target) string {
	if t.Machine == nil {
		return ""
	}
	return t.Machine.Namespace + "/" + t.Machine.Name
}

// GetUnknownFields calls the driver, which makes no request.
func (d *fencedDriver) GetUnknownFields(ctx context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	return d.next.GetUnknownFields(ctx, req)
}

// CreateMachine calls the driver if there is enough time before the fence.
func (d *fencedDriver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	return fenced(ctx, d.fence, driver.OpCreate, create, nameOf(req.Target), d.next.CreateMachine, req)
}

// InitializeMachine calls the driver under an ownership.
func (d *fencedDriver) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	return fenced(ctx, d.fence, driver.OpInitialize, call, nameOf(req.Target), d.next.InitializeMachine, req)
}

// DeleteMachine calls the driver under an ownership.
func (d *fencedDriver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	return fenced(ctx, d.fence, driver.OpDelete, call, nameOf(req.Target), d.next.DeleteMachine, req)
}

// GetMachineStatus calls the driver.
func (d *fencedDriver) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	return fenced(ctx, d.fence, driver.OpStatus, read, nameOf(req.Target), d.next.GetMachineStatus, req)
}

// ListMachines calls the driver.
func (d *fencedDriver) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	return fenced(ctx, d.fence, driver.OpList, read, "", d.next.ListMachines, req)
}

// GetVolumeIDs calls the driver.
func (d *fencedDriver) GetVolumeIDs(ctx context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	return fenced(ctx, d.fence, driver.OpVolumeIDs, read, "", d.next.GetVolumeIDs, req)
}

// Scope calls the driver, which makes no request.
func (d *fencedDriver) Scope(req driver.ScopeRequest) (string, error) {
	sweeper, _ := driver.SweeperOf(d.next)
	return sweeper.Scope(req)
}

// ListResources calls the driver.
func (d *fencedDriver) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	sweeper, _ := driver.SweeperOf(d.next)
	return fenced(ctx, d.fence, driver.OpResources, read, "", sweeper.ListResources, req)
}

// DeleteResource calls the driver under an ownership.
func (d *fencedDriver) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	sweeper, _ := driver.SweeperOf(d.next)
	machine := req.Resource.Namespace + "/" + req.Resource.Machine
	return fenced(ctx, d.fence, driver.OpSweep, call, machine, sweeper.DeleteResource, req)
}
