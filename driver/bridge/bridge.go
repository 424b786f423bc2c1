package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

// Options configure a bridge. The zero value is valid.
type Options struct {
	// AnswerAfter is how long a call waits for the driver until it answers that the work is under way;
	// 0 means 5 s.
	AnswerAfter time.Duration
	// Limit is how long the driver may work on one request; 0 means 20 min.
	Limit time.Duration
	// TagField is the field of the provider spec, an object of strings at its top, to which a create
	// adds the Machine's UID with the key TagUID; "" adds none.
	TagField string
	// ProviderSpec is a value of the type into which the driver decodes provider specs with
	// encoding/json, so that fields are reported that it does not know. Fields that the driver decodes
	// and makes no use of are not reported. nil reports none, and that none are reported.
	ProviderSpec any
	// PassProviderID passes the Machine's provider ID on to the driver. Any client that may write a
	// Machine may write any provider ID there: only drivers that compare it with the Machine's name
	// can be given it.
	PassProviderID bool
	// ProviderID returns the provider ID that a VM's Node gets from its cloud controller manager, of
	// the one that the driver returns, where those differ; nil means that they are equal. It returns
	// all others as they are.
	ProviderID func(id string, class *v1alpha1.MachineClass, secret *corev1.Secret) string
}

// TagUID is the key of the tag with the Machine's UID.
const TagUID = "machine-uid"

const (
	defaultAnswerAfter = 5 * time.Second
	defaultLimit       = 20 * time.Minute
	// askAgain is the time after which the fleet is requested to ask again for what is under way.
	askAgain = 2 * time.Second
)

// Serve serves a driver of Machine Controller Manager on a unix socket until ctx ends, for the
// classes of that provider. Errors as of plugin.Serve.
func Serve(ctx context.Context, socket, provider string, d mcm.Driver, o Options) error {
	return plugin.Serve(ctx, socket, plugin.Served{Driver: New(d, o), Provider: provider})
}

// Driver is a driver of Machine Controller Manager as one of this fleet. Create it with New.
type Driver struct {
	next    mcm.Driver
	options Options
	work    work
}

var _ driver.Driver = (*Driver)(nil)

// New returns the bridge to a driver.
func New(d mcm.Driver, o Options) *Driver {
	if o.AnswerAfter == 0 {
		o.AnswerAfter = defaultAnswerAfter
	}
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	return &Driver{next: d, options: o, work: work{answerAfter: o.AnswerAfter, limit: o.Limit, running: map[string]*task{}}}
}

// GetUnknownFields returns the fields that Options.ProviderSpec does not have. It does not ask the
// driver.
func (d *Driver) GetUnknownFields(_ context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	if d.options.ProviderSpec == nil {
		return driver.GetUnknownFieldsResponse{}, driver.Errorf(driver.OpFields, driver.Unimplemented,
			"a driver of Machine Controller Manager does not report which fields it ignores, "+
				"and the bridge does not know the type of its provider spec")
	}
	return driver.UnknownFields(req.Class.ProviderSpec.Raw, d.options.ProviderSpec)
}

// CreateMachine looks for the VM, and has the driver create one only when there is none for
// certain.
func (d *Driver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	target, err := d.targetOf(driver.OpCreate, req.Target, req.UserData)
	if err != nil {
		return driver.CreateMachineResponse{}, err
	}
	return await(ctx, &d.work, driver.OpCreate, req.Machine.UID, func(ctx context.Context) (driver.CreateMachineResponse, error) {
		vm, found, err := d.find(ctx, driver.OpCreate, target)
		if err != nil || found {
			return driver.CreateMachineResponse{VM: vm}, err
		}
		created, err := d.tagged(driver.OpCreate, target, req.Machine.UID)
		if err != nil {
			return driver.CreateMachineResponse{}, err
		}
		resp, err := d.next.CreateMachine(ctx, &mcm.CreateMachineRequest{
			Machine: created.machine, MachineClass: created.class, Secret: created.secret,
		})
		if resp == nil {
			resp = &mcm.CreateMachineResponse{}
		}
		return driver.CreateMachineResponse{
			VM:             driver.VM{ProviderID: d.providerID(target, resp.ProviderID), NodeName: resp.NodeName, Addresses: resp.Addresses},
			LastKnownState: resp.LastKnownState,
		}, failure(ctx, driver.OpCreate, err)
	})
}

// InitializeMachine has the driver initialize the VM.
func (d *Driver) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	target, err := d.targetOf(driver.OpInitialize, req.Target, nil)
	if err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	return await(ctx, &d.work, driver.OpInitialize, req.Machine.UID, func(ctx context.Context) (driver.InitializeMachineResponse, error) {
		resp, err := d.next.InitializeMachine(ctx, &mcm.InitializeMachineRequest{
			Machine: target.machine, MachineClass: target.class, Secret: target.secret,
		})
		if resp == nil {
			resp = &mcm.InitializeMachineResponse{}
		}
		return driver.InitializeMachineResponse{
			VM: driver.VM{ProviderID: d.providerID(target, resp.ProviderID), NodeName: resp.NodeName, Addresses: resp.Addresses},
		}, failure(ctx, driver.OpInitialize, err)
	})
}

// DeleteMachine has the driver delete the VM and what belongs to it, also when it finds no VM.
// While the driver works Gone is false.
func (d *Driver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	target, err := d.targetOf(driver.OpDelete, req.Target, nil)
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	resp, err := await(ctx, &d.work, driver.OpDelete, req.Machine.UID, func(ctx context.Context) (driver.DeleteMachineResponse, error) {
		vm, found, err := d.find(ctx, driver.OpDelete, target)
		if err != nil && driver.CodeOf(err) != driver.OutOfRange {
			return driver.DeleteMachineResponse{}, err
		}
		owned := found && vm.ProviderID == d.providerID(target, req.Machine.Spec.ProviderID) // which Machine Controller Manager may have written
		resp, err := d.next.DeleteMachine(ctx, &mcm.DeleteMachineRequest{
			Machine: target.machine, MachineClass: target.class, Secret: target.secret,
		})
		err = failure(ctx, driver.OpDelete, err)
		if driver.CodeOf(err) == driver.NotFound {
			err = nil
		}
		if resp == nil {
			resp = &mcm.DeleteMachineResponse{}
		}
		return driver.DeleteMachineResponse{Gone: err == nil, Owned: owned && err == nil, LastKnownState: resp.LastKnownState}, err
	})
	if errors.Is(err, errUnderWay) {
		return driver.DeleteMachineResponse{}, nil
	}
	return resp, err
}

// GetMachineStatus asks the driver.
func (d *Driver) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	target, err := d.targetOf(driver.OpStatus, req.Target, nil)
	if err != nil {
		return driver.GetMachineStatusResponse{}, err
	}
	vm, err := d.status(ctx, driver.OpStatus, target)
	return driver.GetMachineStatusResponse{VM: vm}, err
}

// ListMachines asks the driver.
func (d *Driver) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	target, err := d.targetOf(driver.OpList, driver.Target{Class: req.Class, Secret: req.Secret}, nil)
	if err != nil {
		return driver.ListMachinesResponse{}, err
	}
	machines, err := d.list(ctx, driver.OpList, target)
	return driver.ListMachinesResponse{Machines: machines}, err
}

// GetVolumeIDs asks the driver.
func (d *Driver) GetVolumeIDs(ctx context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	resp, err := bounded(ctx, driver.OpVolumeIDs, func(ctx context.Context) (*mcm.GetVolumeIDsResponse, error) {
		return d.next.GetVolumeIDs(ctx, &mcm.GetVolumeIDsRequest{PVSpecs: req.Volumes})
	})
	if err != nil || resp == nil {
		return driver.GetVolumeIDsResponse{}, err
	}
	return driver.GetVolumeIDsResponse{IDs: resp.VolumeIDs}, nil
}

// find looks for the Machine's VM. found is false when there is none for certain. Errors: all that
// leaves it open.
func (d *Driver) find(ctx context.Context, op driver.Op, t target) (vm driver.VM, found bool, err error) {
	vm, err = d.status(ctx, op, t)
	switch driver.CodeOf(err) { //nolint:exhaustive // all others leave it open
	case driver.OK, driver.Uninitialized:
		return vm, true, nil
	case driver.NotFound:
		return driver.VM{}, false, nil
	case driver.Unimplemented:
		machines, err := d.list(ctx, op, t)
		for id, name := range machines {
			if name == t.machine.Name {
				return driver.VM{ProviderID: id, NodeName: name}, true, nil
			}
		}
		return driver.VM{}, false, err
	}
	return driver.VM{}, false, err
}

// status asks the driver for the Machine's VM.
func (d *Driver) status(ctx context.Context, op driver.Op, t target) (driver.VM, error) {
	resp, err := bounded(ctx, op, func(ctx context.Context) (*mcm.GetMachineStatusResponse, error) {
		return d.next.GetMachineStatus(ctx, &mcm.GetMachineStatusRequest{Machine: t.machine, MachineClass: t.class, Secret: t.secret})
	})
	if resp == nil {
		resp = &mcm.GetMachineStatusResponse{}
	}
	if err == nil && resp.ProviderID == "" {
		err = driver.Errorf(op, driver.Unknown, "the driver reported a VM without a provider ID")
	}
	return driver.VM{ProviderID: d.providerID(t, resp.ProviderID), NodeName: resp.NodeName, Addresses: resp.Addresses}, err
}

// list asks the driver for all VMs of the class.
func (d *Driver) list(ctx context.Context, op driver.Op, t target) (map[string]string, error) {
	resp, err := bounded(ctx, op, func(ctx context.Context) (*mcm.ListMachinesResponse, error) {
		return d.next.ListMachines(ctx, &mcm.ListMachinesRequest{MachineClass: t.class, Secret: t.secret})
	})
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, driver.Errorf(op, driver.Unknown, "the driver returned neither a list nor an error")
	}
	machines := make(map[string]string, len(resp.MachineList))
	for id, name := range resp.MachineList {
		machines[d.providerID(t, id)] = name
	}
	return machines, nil
}

// providerID returns the provider ID of the Node of a VM that the driver has returned; "" for "".
func (d *Driver) providerID(t target, id string) string {
	if id == "" || d.options.ProviderID == nil {
		return id
	}
	return d.options.ProviderID(id, t.class, t.secret)
}

// bounded sends a call that changes nothing, and returns when ctx ends, whether or not the driver
// does. It never waits longer.
func bounded[T any](ctx context.Context, op driver.Op, do func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var nothing T
	if ctx.Err() != nil {
		return nothing, ended(ctx, op)
	}
	answered := make(chan outcome, 1)
	go func() {
		value, err := caught(op, func() (T, error) { return do(ctx) })
		answered <- outcome{value, failure(ctx, op, err)}
	}()
	select {
	case got := <-answered:
		return got.value, got.err
	case <-ctx.Done():
		return nothing, ended(ctx, op)
	}
}

// caught turns a panic of the driver into an error: it is in a goroutine, where it would end the
// process.
func caught[T any](op driver.Op, do func() (T, error)) (value T, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = driver.Errorf(op, driver.Internal, "the driver panicked: %s", driver.Clean(fmt.Sprint(fault)))
		}
	}()
	return do()
}
