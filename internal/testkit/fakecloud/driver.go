package fakecloud

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Via is the way of calls to a cloud: it calls send, which sends a call, or does not, and returns
// what the caller gets as the error. An answer is lost with an error that is not that of send.
type Via func(ctx context.Context, call Call, send func() error) error

// Driver is a driver of a cloud.
type Driver struct {
	cloud *Cloud
	via   Via
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
)

// Driver returns a driver of the cloud.
func (c *Cloud) Driver() *Driver {
	return c.Via(func(ctx context.Context, call Call, send func() error) error {
		if c.Way == nil {
			return send()
		}
		return c.Way(ctx, call, send)
	})
}

// Via returns a driver whose calls use a way.
func (c *Cloud) Via(via Via) *Driver { return &Driver{c, via} }

// do sends a call, and returns its answer.
func do[R any](ctx context.Context, d *Driver, call Call, effect func(*R) error) (answer R, err error) {
	var sent error
	if call.Machine != nil && (call.Op == driver.OpCreate || call.Op == driver.OpDelete) {
		call.Note = call.Machine.Status.LastKnownState
	}
	err = d.via(ctx, call, func() error {
		var fault *Fault
		if fault, sent = d.cloud.carryOut(ctx, call, func() error { return effect(&answer) }); fault != nil {
			answer = *new(R)
		}
		switch of := any(&answer).(type) {
		case *driver.CreateMachineResponse:
			of.LastKnownState = d.cloud.Note()
		case *driver.DeleteMachineResponse:
			of.LastKnownState = d.cloud.Note()
		}
		return sent
	})
	if err != nil && !errors.Is(err, sent) {
		answer = *new(R)
	}
	return answer, err
}

// find returns the VMs of a Machine that have not begun to end, and whether its provider ID names
// another one. The cloud's lock is held.
func (d *Driver) find(t driver.Target) (own []*Resource, left bool) {
	for _, r := range d.cloud.all {
		if r.Live() && r.Kind == driver.ResourceVM {
			if r.isOf(t) {
				own = append(own, r)
			} else {
				left = left || r.isNamedBy(t)
			}
		}
	}
	return own, left
}

// CreateMachine is driver.Driver's.
func (d *Driver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	call := Call{Op: driver.OpCreate, Target: req.Target, UserData: string(req.UserData)}
	return do(ctx, d, call, func(answer *driver.CreateMachineResponse) error {
		own, _ := d.find(req.Target)
		if len(own) == 0 || d.cloud.Twins {
			own = []*Resource{d.cloud.create(req.Target)}
		}
		answer.VM = own[0].vm()
		return nil
	})
}

// InitializeMachine is driver.Driver's.
func (d *Driver) InitializeMachine(
	ctx context.Context, req driver.InitializeMachineRequest,
) (answer driver.InitializeMachineResponse, err error) {
	if !d.cloud.Prepares {
		return answer, driver.Errorf(driver.OpInitialize, driver.Unimplemented, "nothing to do")
	}
	return do(ctx, d, Call{Op: driver.OpInitialize, Target: req.Target}, func(*driver.InitializeMachineResponse) error {
		own, _ := d.find(req.Target)
		for _, r := range own {
			r.Ready = true
		}
		if len(own) == 0 {
			return driver.Errorf(driver.OpInitialize, driver.NotFound, "no VM")
		}
		return nil
	})
}

// DeleteMachine is driver.Driver's.
func (d *Driver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	return do(ctx, d, Call{Op: driver.OpDelete, Target: req.Target}, func(answer *driver.DeleteMachineResponse) error {
		if req.Machine.UID == "" {
			return driver.Errorf(driver.OpDelete, driver.InvalidArgument, "no UID")
		}
		answer.Gone = true
		_, answer.Left = d.find(req.Target)
		for _, r := range d.cloud.all {
			if r.isOf(req.Target) {
				answer.Owned = answer.Owned || r.isNamedBy(req.Target) && !d.cloud.Forgets
				answer.Gone = d.cloud.end(r) && answer.Gone
			}
		}
		return nil
	})
}

// GetMachineStatus is driver.Driver's.
func (d *Driver) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	return do(ctx, d, Call{Op: driver.OpStatus, Target: req.Target}, func(answer *driver.GetMachineStatusResponse) error {
		var own []*Resource
		own, answer.Left = d.find(req.Target)
		switch {
		case len(own) == 0:
			return driver.Errorf(driver.OpStatus, driver.NotFound, "no VM of Machine %s", req.Machine.Name)
		case len(own) > 1:
			return driver.Errorf(driver.OpStatus, driver.OutOfRange, "%d VMs", len(own))
		}
		if answer.VM = own[0].vm(); !own[0].Ready {
			return driver.Errorf(driver.OpStatus, driver.Uninitialized, "not set up")
		}
		return nil
	})
}

// ListMachines is driver.Driver's.
func (d *Driver) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	call := Call{Op: driver.OpList, Target: driver.Target{Class: req.Class, Secret: req.Secret}}
	return do(ctx, d, call, func(answer *driver.ListMachinesResponse) error {
		answer.Machines = map[string]string{}
		for _, r := range d.cloud.all {
			if r.Live() && r.Kind == driver.ResourceVM {
				answer.Machines[r.ID] = r.Machine
			}
		}
		return nil
	})
}

// GetUnknownFields is driver.Driver's. The cloud is not involved, and its faults have no effect.
func (d *Driver) GetUnknownFields(
	ctx context.Context, req driver.GetUnknownFieldsRequest,
) (answer driver.GetUnknownFieldsResponse, err error) {
	err = d.via(ctx, Call{Op: driver.OpFields}, func() (err error) {
		answer, err = driver.UnknownFields(req.Class.ProviderSpec.Raw, struct{ Size string }{})
		return err
	})
	return answer, err
}

// GetVolumeIDs is driver.Driver's. The cloud's volumes are those that are attached without CSI.
func (d *Driver) GetVolumeIDs(ctx context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	return do(ctx, d, Call{Op: driver.OpVolumeIDs}, func(answer *driver.GetVolumeIDsResponse) error {
		for _, v := range req.Volumes {
			if v.AWSElasticBlockStore != nil {
				answer.IDs = append(answer.IDs, v.AWSElasticBlockStore.VolumeID)
			}
		}
		return nil
	})
}

// targetOf returns what a request of a sweep names.
func targetOf(req driver.ScopeRequest) driver.Target {
	return driver.Target{Class: req.Class, Secret: req.Secret, ControlCluster: req.ControlCluster}
}

// Scope is driver.Sweeper's. Its way must not wait.
func (d *Driver) Scope(req driver.ScopeRequest) (scope string, err error) {
	ctx := context.Background() //nolint:forbidigo // Scope has none
	err = d.via(ctx, Call{Op: driver.OpScope, Target: targetOf(req)}, func() error {
		scope = account(req.Secret)
		return nil
	})
	return scope, err
}

// ListResources is driver.Sweeper's.
func (d *Driver) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	call := Call{Op: driver.OpResources, Target: targetOf(req.ScopeRequest), Continue: req.Continue}
	return do(ctx, d, call, func(answer *driver.ListResourcesResponse) error {
		from, err := strconv.Atoi(cmp.Or(req.Continue, "0"))
		if err != nil || req.ControlCluster == "" {
			return driver.Errorf(driver.OpResources, driver.InvalidArgument, "continue %q in control cluster %q", req.Continue, req.ControlCluster)
		}
		for _, r := range d.cloud.all {
			if (r.Live() || d.cloud.Lags) && r.Namespace == req.Class.Namespace && r.ControlCluster == req.ControlCluster &&
				r.accountIs(req.Secret) {
				answer.Items = append(answer.Items, r.Resource)
			}
		}
		if page := d.cloud.Page; page > 0 {
			from = min(from, len(answer.Items))
			to := min(from+page, len(answer.Items))
			if to < len(answer.Items) {
				answer.Continue = strconv.Itoa(to)
			}
			answer.Items = answer.Items[from:to]
		}
		return nil
	})
}

func (r *Resource) accountIs(secret map[string][]byte) bool {
	return account(map[string][]byte{"account": []byte(r.Account)}) == account(secret)
}

// DeleteResource is driver.Sweeper's.
func (d *Driver) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	call := Call{Op: driver.OpSweep, Target: targetOf(req.ScopeRequest), Resource: req.Resource}
	return do(ctx, d, call, func(answer *driver.DeleteResourceResponse) error {
		kinds := []driver.ResourceKind{driver.ResourceVM, driver.ResourceNetworkInterface, driver.ResourceDisk, driver.ResourceAddress}
		if q := req.Resource; q.ID == "" || q.MachineUID == "" || req.ControlCluster == "" || !slices.Contains(kinds, q.Kind) {
			return driver.Errorf(driver.OpSweep, driver.InvalidArgument, "%+v in control cluster %q", q, req.ControlCluster)
		}
		answer.Gone = true
		for _, r := range d.cloud.all {
			if r.ID == req.Resource.ID && r.MachineUID == req.Resource.MachineUID && r.ControlCluster == req.ControlCluster {
				answer.Gone = d.cloud.end(r) && answer.Gone
			}
		}
		return nil
	})
}
