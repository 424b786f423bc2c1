package azure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/unseen"
)

// The states of resources that matter.
const (
	stateDeleting  = "Deleting"
	stateFailed    = "Failed"
	stateSucceeded = "Succeeded"
)

// settleTime is how long after a create the cloud may answer that there is no such VM. It is
// seconds as a rule.
const settleTime = 30 * time.Second

// resource is a VM, network interface or disk at the cloud.
type resource struct {
	id    resourceID
	tags  tagSet
	state string
	// user is the VM that uses a network interface or disk; "" for none.
	user string
	// address is the private one of a network interface; "" while there is none.
	address string
}

// is reports the state of a resource. The cloud does not distinguish upper and lower case.
func (r resource) is(state string) bool { return strings.EqualFold(r.state, state) }

// isOf reports whether a resource has the Machine's UID.
func (r resource) isOf(t driver.Target) bool { return r.tags[TagMachineUID] == string(t.Machine.UID) }

// read reads a resource. found is false when the cloud answers that there is none, or that there is
// no such resource group; then s.noGroup is set.
func (s *session) read(ctx context.Context, id resourceID) (r resource, found bool, err error) {
	r, err = send(ctx, s, func(ctx context.Context) (resource, error) {
		switch id.kind {
		case typeNIC:
			resp, err := s.nics.Get(ctx, id.group, id.name, nil)
			return nicOf(&resp.Interface), err
		case typeDisk:
			resp, err := s.disks.Get(ctx, id.group, id.name, nil)
			return diskOf(&resp.Disk), err
		}
		resp, err := s.vms.Get(ctx, id.group, id.name, nil)
		return vmOf(&resp.VirtualMachine), err
	})
	if driver.CodeOf(err) == driver.NotFound {
		return resource{}, false, nil
	}
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.code == codeNoGroup {
		s.noGroup = err
		return resource{}, false, nil
	}
	if err == nil && !r.id.same(id) {
		err = driver.Errorf(s.op, driver.Internal, "the cloud answered with %q; expected %q", r.id.String(), id.String())
	}
	if err != nil {
		return resource{}, false, err
	}
	return r, true, nil
}

// vmOf, nicOf and diskOf read what the cloud returns. A resource whose ID cannot be read has an
// empty one.
func vmOf(vm *armcompute.VirtualMachine) resource {
	r := resource{id: idOf(vm.ID, typeVM), tags: tagsOf(vm.Tags)}
	if vm.Properties != nil {
		r.state = value(vm.Properties.ProvisioningState)
	}
	return r
}

func nicOf(nic *armnetwork.Interface) resource {
	r := resource{id: idOf(nic.ID, typeNIC), tags: tagsOf(nic.Tags)}
	p := nic.Properties
	if p == nil {
		return r
	}
	r.state = string(value(p.ProvisioningState))
	if p.VirtualMachine != nil {
		r.user = value(p.VirtualMachine.ID)
	}
	if p.PrivateEndpoint != nil {
		r.user = value(p.PrivateEndpoint.ID)
	}
	if len(p.IPConfigurations) > 0 && p.IPConfigurations[0] != nil && p.IPConfigurations[0].Properties != nil {
		r.address = value(p.IPConfigurations[0].Properties.PrivateIPAddress)
	}
	return r
}

func diskOf(disk *armcompute.Disk) resource {
	r := resource{id: idOf(disk.ID, typeDisk), tags: tagsOf(disk.Tags), user: value(disk.ManagedBy)}
	if disk.Properties != nil {
		r.state = value(disk.Properties.ProvisioningState)
	}
	return r
}

func idOf(text *string, kind string) resourceID {
	id, ok := parseResourceID(value(text))
	if !ok || id.kind != kind {
		return resourceID{}
	}
	return id
}

// candidates returns the names that the Machine's VM can have in the resource group of the class.
func (s *session) candidates(t driver.Target) (ids []resourceID) {
	first, second := vmNames(t.Machine.Name, string(t.Machine.UID))
	for _, name := range []string{first, second} {
		if isName(name) {
			ids = append(ids, s.id(typeVM, name))
		}
	}
	return ids
}

// isOwn reports whether a VM is the Machine's.
func (s *session) isOwn(t driver.Target, vm resource) bool {
	return vm.tags.isOwn(t, s.at, vm.id.name, t.Machine.Name)
}

// named returns the VM that the Machine's provider ID names, if there is one.
func (s *session) named(ctx context.Context, t driver.Target) (vm resource, found bool, err error) {
	id, ok := parseProviderID(t.Machine.Spec.ProviderID, s.subscription, s.at.resourceGroup)
	if !ok {
		return resource{}, false, nil
	}
	return s.read(ctx, id)
}

// owned returns the VMs that are the Machine's, by their names, those that are ending, too. known
// is one that was read already, or the zero value; it is not read again. Where a resource group
// does not exist it looks for VMs with the Machine's UID in the whole subscription: the class may
// have named another group when the VM was created.
func (s *session) owned(ctx context.Context, t driver.Target, known resource) (vms []resource, err error) {
	if err := s.needsGroup(); err != nil {
		return nil, err
	}
	for _, id := range s.candidates(t) {
		vm, found := known, true
		if !known.id.same(id) {
			if vm, found, err = s.read(ctx, id); err != nil {
				return nil, err
			}
		}
		if found && s.isOwn(t, vm) {
			vms = append(vms, vm)
		}
	}
	if s.noGroup == nil {
		return vms, nil
	}
	return s.ofUID(ctx, t)
}

// ofUID returns the VMs of the subscription that have the Machine's UID.
func (s *session) ofUID(ctx context.Context, t driver.Target) (vms []resource, err error) {
	for next, first := "", true; first || next != ""; first = false {
		page, err := s.page(ctx, list{kind: typeVM}, next)
		if err != nil {
			return nil, err
		}
		for _, vm := range page.items {
			if vm.isOf(t) {
				vms = append(vms, vm)
			}
		}
		if next = page.next; next != "" && ctx.Err() != nil {
			return nil, toError(ctx, s.op, s.driver.clock.Now(), ctx.Err())
		}
	}
	return vms, nil
}

// find returns the one VM of a Machine that has not begun to end. left reports whether its provider
// ID names a VM that is not the Machine's.
func (s *session) find(ctx context.Context, t driver.Target) (vm resource, left bool, err error) {
	if t.Machine.UID == "" {
		return resource{}, false, s.withoutUID(t)
	}
	named, found, err := s.named(ctx, t)
	if err != nil {
		return resource{}, false, err
	}
	if found && s.isOwn(t, named) && !named.is(stateDeleting) {
		return named, false, nil
	}
	left = found && !s.isOwn(t, named) && !named.is(stateDeleting)
	vms, err := s.owned(ctx, t, named)
	if err != nil {
		return resource{}, false, err
	}
	vms = slices.DeleteFunc(vms, func(vm resource) bool { return vm.is(stateDeleting) })
	switch len(vms) {
	case 0:
		return resource{}, left, driver.Errorf(s.op, driver.NotFound, "no VM has the tag %s=%s", TagMachineUID, t.Machine.UID)
	case 1:
		return vms[0], left, nil
	}
	return resource{}, left, driver.Errorf(s.op, driver.OutOfRange, "several VMs have the tag %s=%s; expected one: %s, %s",
		TagMachineUID, t.Machine.UID, vms[0].id.name, vms[1].id.name)
}

func (s *session) withoutUID(t driver.Target) error {
	return s.invalid("Machine %q has no UID: no VM can be identified as its own", t.Machine.Name)
}

// describe returns what the fleet records of a VM.
func describe(vm resource) driver.VM {
	found := driver.VM{ProviderID: vm.id.providerID(), NodeName: strings.ToLower(vm.id.name)}
	if vm.address != "" {
		found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: vm.address})
	}
	found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: found.NodeName})
	return found
}

// GetMachineStatus looks for the VM with the Machine's provider ID, with one request, and where
// there is none that is the Machine's for those with the names that its VM can have, with two. One
// that has no capacity is Uninitialized, for which it sends one request more: InitializeMachine
// starts it again.
func (d *Driver) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	s, err := d.begin(driver.OpStatus, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.GetMachineStatusResponse{}, err
	}
	vm, left, err := s.find(ctx, req.Target)
	if requested := unseen.RequestedAt(req.Machine); driver.CodeOf(err) == driver.NotFound && !left &&
		unseen.IsRecent(requested, driver.Now(ctx, d.clock.Now()), settleTime) {
		return driver.GetMachineStatusResponse{}, driver.Pendingf(s.op, driver.Unavailable,
			"the cloud does not show the VM yet, which it accepted at %s", requested)
	}
	if err != nil {
		return driver.GetMachineStatusResponse{Left: left}, err
	}
	resp := driver.GetMachineStatusResponse{VM: describe(vm), Left: left}
	shortage, err := s.shortage(ctx, vm)
	switch {
	case err != nil:
		return driver.GetMachineStatusResponse{}, err
	case shortage != "":
		return resp, driver.Errorf(s.op, driver.Uninitialized, "VM %s was accepted and has no capacity: %s", vm.id.name, shortage)
	}
	return resp, nil
}

// InitializeMachine starts a VM again that the cloud has accepted and then found no capacity for,
// and returns ResourceExhausted with the cloud's reason. Whether that helps is seen when it is
// called again. It returns all other VMs as they are.
func (d *Driver) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	s, err := d.begin(driver.OpInitialize, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	vm, _, err := s.find(ctx, req.Target)
	if err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	shortage, err := s.shortage(ctx, vm)
	if err != nil || shortage == "" {
		return driver.InitializeMachineResponse{VM: describe(vm)}, err
	}
	if _, err = send(ctx, s, func(ctx context.Context) (any, error) {
		return s.vms.BeginStart(ctx, vm.id.group, vm.id.name, nil)
	}); err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	return driver.InitializeMachineResponse{}, driver.Errorf(s.op, driver.ResourceExhausted, "%s", shortage)
}

// shortage returns why the cloud has no capacity for a VM that it has accepted, or "".
func (s *session) shortage(ctx context.Context, vm resource) (string, error) {
	if !vm.is(stateFailed) {
		return "", nil
	}
	view, err := send(ctx, s, func(ctx context.Context) (armcompute.VirtualMachinesClientInstanceViewResponse, error) {
		return s.vms.InstanceView(ctx, vm.id.group, vm.id.name, nil)
	})
	if err != nil {
		return "", err
	}
	for _, status := range view.Statuses {
		if status == nil {
			continue
		}
		// As in ProvisioningState/failed/AllocationFailed.
		code, message := value(status.Code), value(status.Message)
		if reason := code[strings.LastIndex(code, "/")+1:]; isExhausted(reason, message) {
			return reason + ": " + message, nil
		}
	}
	return "", nil
}

// GetUnknownFields returns the fields that are no fields of ProviderSpec, or else what
// ParseProviderSpec rejects. It sends no request.
func (*Driver) GetUnknownFields(_ context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	return driver.CheckFields(req.Class.ProviderSpec.Raw, ParseProviderSpec)
}

// GetVolumeIDs returns the IDs of volumes of the cloud's CSI driver, and the names of those of the
// driver before it. It sends no request.
func (*Driver) GetVolumeIDs(_ context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	const csiDriver = "disk.csi.azure.com"
	var ids []string
	for _, v := range req.Volumes {
		switch {
		case v == nil:
		case v.AzureDisk != nil && v.AzureDisk.DiskName != "":
			ids = append(ids, v.AzureDisk.DiskName)
		case v.CSI != nil && v.CSI.Driver == csiDriver && v.CSI.VolumeHandle != "":
			ids = append(ids, v.CSI.VolumeHandle)
		}
	}
	return driver.GetVolumeIDsResponse{IDs: ids}, nil
}
