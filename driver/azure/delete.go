package azure

import (
	"context"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/unseen"
)

// DeleteMachine removes the VM with the Machine's provider ID, if it is the Machine's, and
// otherwise those with the names that its VM can have. Whose a VM is is read immediately before it
// is deleted: the cloud cannot check that itself. Its network interface and disks are deleted with
// it.
//
// While a VM is ending a call sends one or two requests. When there is none it looks for what a
// create has left, by name and by UID: one request for each network interface and disk that there
// can be, and one more for each that there is. These are deleted after the VM, because the cloud
// deletes nothing that a VM uses.
//
// Soon after a create, while the cloud may not show the VM yet, nothing counts as gone.
//
// The provider spec need not be valid: all that is used of it is the resource group, and the names
// of data disks.
func (d *Driver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	s, err := d.begin(driver.OpDelete, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	if req.Machine.UID == "" {
		return driver.DeleteMachineResponse{}, s.withoutUID(req.Target)
	}
	named, found, err := s.named(ctx, req.Target)
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	var resp driver.DeleteMachineResponse
	if found && s.isOwn(req.Target, named) {
		if err := s.remove(ctx, named); err != nil {
			return driver.DeleteMachineResponse{}, err
		}
		return driver.DeleteMachineResponse{Owned: true}, nil
	}
	resp.Left = found && !named.is(stateDeleting)
	vms, err := s.owned(ctx, req.Target, named)
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	for _, vm := range vms {
		if err := s.remove(ctx, vm); err != nil {
			return driver.DeleteMachineResponse{}, err
		}
	}
	if len(vms) > 0 {
		return resp, nil
	}
	if resp.Gone, err = s.removeLeftovers(ctx, req.Target); err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	resp.Gone = resp.Gone && !unseen.MayBe(req.Machine, driver.Now(ctx, d.clock.Now()), settleTime)
	return resp, nil
}

// remove begins to delete a resource, unless that has begun.
func (s *session) remove(ctx context.Context, r resource) error {
	if r.is(stateDeleting) {
		return nil
	}
	_, err := send(ctx, s, func(ctx context.Context) (any, error) {
		switch r.id.kind {
		case typeNIC:
			return s.nics.BeginDelete(ctx, r.id.group, r.id.name, nil)
		case typeDisk:
			return s.disks.BeginDelete(ctx, r.id.group, r.id.name, nil)
		}
		return s.vms.BeginDelete(ctx, r.id.group, r.id.name, nil)
	})
	if driver.CodeOf(err) == driver.NotFound {
		return nil
	}
	return err
}

// removeLeftovers begins to delete the network interfaces and disks of a Machine that has no VM.
// gone reports whether there is none. One that a VM of another name uses is not a left-over: its
// owner has attached it there.
func (s *session) removeLeftovers(ctx context.Context, t driver.Target) (gone bool, err error) {
	gone = true
	for _, vm := range s.candidates(t) {
		for _, id := range s.partsOf(vm) {
			r, found, err := s.read(ctx, id)
			if err != nil {
				return false, err
			}
			if !found || !s.isOwnPart(t, r, vm) || r.user != "" && !strings.EqualFold(r.user, vm.String()) {
				continue
			}
			gone = false
			if err := s.remove(ctx, r); err != nil {
				return false, err
			}
		}
	}
	return gone, nil
}

// isOwnPart reports whether a network interface or disk with the name of a VM's part is the
// Machine's.
func (s *session) isOwnPart(t driver.Target, r resource, vm resourceID) bool {
	return r.tags.isOwn(t, s.at, vm.name, t.Machine.Name)
}

// partsOf returns what belongs to a VM: the network interface, the OS disk, and the data disks of
// the class.
func (s *session) partsOf(vm resourceID) []resourceID {
	ids := []resourceID{s.id(typeNIC, nicName(vm.name)), s.id(typeDisk, osDiskName(vm.name))}
	for _, disk := range s.at.disks {
		ids = append(ids, s.id(typeDisk, dataDiskName(vm.name, disk)))
	}
	return slices.DeleteFunc(ids, func(id resourceID) bool { return !isName(id.name) })
}
