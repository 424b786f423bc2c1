package plugin

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// GetUnknownFields calls the driver, if it knows which fields it ignores.
func (c *Client) GetUnknownFields(ctx context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	class, err := toClass(req.Class)
	if err != nil {
		return driver.GetUnknownFieldsResponse{}, unsendable(driver.OpFields, err)
	}
	if c.agree(ctx) == nil && !c.agreement.Load().can(driverv1.Capability_CAPABILITY_UNKNOWN_FIELDS) {
		return driver.GetUnknownFieldsResponse{}, driver.Errorf(driver.OpFields, driver.Unimplemented,
			"the driver does not report which fields it ignores")
	}
	got, err := invoke(ctx, c, driver.OpFields, c.remote.GetUnknownFields, &driverv1.GetUnknownFieldsRequest{Class: class})
	return driver.GetUnknownFieldsResponse{Fields: got.GetFields(), Refused: got.GetRefused()}, err
}

// CreateMachine calls the driver.
func (c *Client) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	target, err := toTarget(req.Target)
	if err != nil {
		return driver.CreateMachineResponse{}, unsendable(driver.OpCreate, err)
	}
	got, err := invoke(ctx, c, driver.OpCreate, c.remote.CreateMachine, &driverv1.CreateMachineRequest{Target: target, UserData: req.UserData})
	return driver.CreateMachineResponse{VM: fromVM(got.GetVm()), LastKnownState: got.GetLastKnownState()}, err
}

// InitializeMachine calls the driver, if it can initialize machines.
func (c *Client) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	if a := c.agreement.Load(); a != nil && a.refusal == nil && !a.can(driverv1.Capability_CAPABILITY_INITIALIZE) {
		return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.Unimplemented, "the driver initializes no machine")
	}
	target, err := toTarget(req.Target)
	if err != nil {
		return driver.InitializeMachineResponse{}, unsendable(driver.OpInitialize, err)
	}
	got, err := invoke(ctx, c, driver.OpInitialize, c.remote.InitializeMachine, &driverv1.InitializeMachineRequest{Target: target})
	return driver.InitializeMachineResponse{VM: fromVM(got.GetVm())}, err
}

// DeleteMachine calls the driver.
func (c *Client) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	target, err := toTarget(req.Target)
	if err != nil {
		return driver.DeleteMachineResponse{}, unsendable(driver.OpDelete, err)
	}
	got, err := invoke(ctx, c, driver.OpDelete, c.remote.DeleteMachine, &driverv1.DeleteMachineRequest{Target: target})
	return driver.DeleteMachineResponse{
		Gone: got.GetGone(), LastKnownState: got.GetLastKnownState(), Left: got.GetLeft(), Owned: got.GetOwned(),
	}, err
}

// GetMachineStatus calls the driver.
func (c *Client) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	target, err := toTarget(req.Target)
	if err != nil {
		return driver.GetMachineStatusResponse{}, unsendable(driver.OpStatus, err)
	}
	got, err := invoke(ctx, c, driver.OpStatus, c.remote.GetMachineStatus, &driverv1.GetMachineStatusRequest{Target: target})
	return driver.GetMachineStatusResponse{VM: fromVM(got.GetVm()), Left: got.GetLeft()}, err
}

// ListMachines calls the driver, and reads all pages of its answer.
func (c *Client) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	class, err := toClass(req.Class)
	if err != nil {
		return driver.ListMachinesResponse{}, unsendable(driver.OpList, err)
	}
	ctx, cancel, err := c.begin(ctx, driver.OpList)
	if err != nil {
		return driver.ListMachinesResponse{}, err
	}
	defer cancel()
	pages, err := c.remote.ListMachines(ctx, &driverv1.ListMachinesRequest{Class: class, Secret: req.Secret})
	if err != nil {
		return driver.ListMachinesResponse{}, c.unanswered(ctx, driver.OpList, err)
	}
	machines, listed := map[string]string{}, 0
	for {
		page, err := pages.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return driver.ListMachinesResponse{Machines: machines}, nil
		case err != nil:
			return driver.ListMachinesResponse{}, c.unanswered(ctx, driver.OpList, err)
		case page.GetFailure() != nil:
			return driver.ListMachinesResponse{}, fromFailure(driver.OpList, page.GetFailure())
		case len(page.GetMachines()) == 0:
			return driver.ListMachinesResponse{}, driver.Errorf(driver.OpList, driver.Internal,
				"the driver listed a page without VMs; expected the end of the list instead")
		}
		if listed += len(page.GetMachines()); listed > driver.MaxListed { // repeated ones count again, so that the list ends
			return driver.ListMachinesResponse{},
				driver.Errorf(driver.OpList, driver.Internal, "the driver listed more than %d VMs", driver.MaxListed)
		}
		maps.Copy(machines, page.GetMachines())
	}
}

// GetVolumeIDs calls the driver, with a bounded number of volumes at a time.
func (c *Client) GetVolumeIDs(ctx context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	var resp driver.GetVolumeIDsResponse
	for volumes := range slices.Chunk(req.Volumes, volumePage) {
		sent, err := toVolumes(volumes)
		if err != nil {
			return driver.GetVolumeIDsResponse{}, unsendable(driver.OpVolumeIDs, err)
		}
		got, err := invoke(ctx, c, driver.OpVolumeIDs, c.remote.GetVolumeIDs, &driverv1.GetVolumeIDsRequest{Volumes: sent})
		if err != nil {
			return driver.GetVolumeIDsResponse{}, err
		}
		resp.IDs = append(resp.IDs, got.GetIds()...)
	}
	return resp, nil
}

// Scope calls the driver. It has no context, so that it has its own short deadline.
func (c *Client) Scope(req driver.ScopeRequest) (string, error) {
	sent, err := toScope(req)
	if err != nil {
		return "", unsendable(driver.OpScope, err)
	}
	ctx, cancel := context.WithTimeout(c.lifetime, negotiationTimeout)
	defer cancel()
	got, err := invoke(ctx, c, driver.OpScope, c.remote.Scope, sent)
	return got.GetScope(), err
}

// ListResources calls the driver.
func (c *Client) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	scope, err := toScope(req.ScopeRequest)
	if err != nil {
		return driver.ListResourcesResponse{}, unsendable(driver.OpResources, err)
	}
	got, err := invoke(ctx, c, driver.OpResources,
		c.remote.ListResources, &driverv1.ListResourcesRequest{Scope: scope, PageToken: req.Continue})
	resp := driver.ListResourcesResponse{Continue: got.GetNextPageToken()}
	for _, r := range got.GetItems() {
		resp.Items = append(resp.Items, fromResource(r))
	}
	return resp, err
}

// DeleteResource calls the driver.
func (c *Client) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	scope, err := toScope(req.ScopeRequest)
	if err != nil {
		return driver.DeleteResourceResponse{}, unsendable(driver.OpSweep, err)
	}
	got, err := invoke(ctx, c, driver.OpSweep,
		c.remote.DeleteResource, &driverv1.DeleteResourceRequest{Scope: scope, Resource: toResource(req.Resource)})
	return driver.DeleteResourceResponse{Gone: got.GetGone()}, err
}
