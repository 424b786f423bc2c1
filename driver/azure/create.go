package azure

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// underWayFor is how long a create waits before it looks again for a part that is being made.
const underWayFor = 5 * time.Second

// CreateMachine makes the VM in steps: the network interface, each data disk that has an image, and the VM. Each step first looks for
// what an earlier call has made, by its name and the Machine's UID, so that a call goes on where the one before has ended, in whatever
// process. It waits for no operation of the cloud: while a disk is being made it is Unavailable, and the VM is returned as soon as the
// cloud has accepted it.
//
// A VM is made under the condition that there is none of that name. It makes up to four requests to find out that nothing exists, one to
// three for an image of the marketplace that has not been used before, and two for each step.
func (d *Driver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	made, err := d.create(ctx, req)
	if err != nil {
		return driver.CreateMachineResponse{}, err
	}
	return driver.CreateMachineResponse{VM: describe(made)}, nil
}

func (d *Driver) create(ctx context.Context, req driver.CreateMachineRequest) (resource, error) {
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return resource{}, driver.Errorf(driver.OpCreate, driver.InvalidArgument, "%w", err)
	}
	s, err := d.begin(driver.OpCreate, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return resource{}, err
	}
	switch name := req.Machine.Name; {
	case req.Machine.UID == "":
		return resource{}, s.withoutUID(req.Target)
	case len(name) > maxVMName || !isName(name):
		return resource{}, s.invalid("the name %q of the Machine cannot be that of a VM; expected at most %d letters, digits, - and .", name, maxVMName)
	case len(bytes.TrimSpace(req.UserData)) == 0:
		return resource{}, s.invalid("data[userData]: Required value")
	}
	vm, free, err := s.vacancy(ctx, req.Target)
	if err != nil || !free {
		return vm, err
	}
	return s.assemble(ctx, req, spec, vm)
}

// vacancy returns the Machine's VM, if it has one. Otherwise free is true, and vm has the name for a new one: the first that no other
// Machine's VM or network interface has.
func (s *session) vacancy(ctx context.Context, t driver.Target) (vm resource, free bool, err error) {
	var names []resourceID
	for _, id := range s.candidates(t) {
		vm, found, err := s.read(ctx, id)
		switch {
		case err != nil:
			return resource{}, false, err
		case !found:
			names = append(names, id)
		case !s.isOwn(t, vm):
		case vm.is(stateDeleting):
			return resource{}, false, driver.Errorf(s.op, driver.Aborted, "VM %s of this Machine is being deleted", id.name)
		default:
			return vm, false, nil
		}
	}
	for _, id := range names {
		nic, found, err := s.read(ctx, s.id(typeNIC, nicName(id.name)))
		if err != nil {
			return resource{}, false, err
		}
		if !found || nic.tags[TagMachineUID] == string(t.Machine.UID) {
			return resource{id: id}, true, nil
		}
	}
	return resource{}, false, driver.Errorf(s.op, driver.AlreadyExists,
		"resource group %s has resources of others with each of the names that the VM of Machine %s can have; delete them, or use another resource group",
		s.at.resourceGroup, t.Machine.Name)
}

// assemble makes what is missing of a VM, and then the VM.
func (s *session) assemble(ctx context.Context, req driver.CreateMachineRequest, spec ProviderSpec, vm resource) (resource, error) {
	p := parts{spec: spec, vm: vm.id, nic: s.id(typeNIC, nicName(vm.id.name)), userData: req.UserData, tags: tagsFor(req.Target, spec.Tags)}
	if image := spec.Properties.StorageProfile.ImageReference; value(image.URN) != "" && !image.SkipMarketplaceAgreement {
		found, err := s.market(ctx, spec.Location, *image.URN, true)
		if err != nil {
			return resource{}, err
		}
		p.plan = found.plan
	}
	nic, err := s.ensure(ctx, req.Target, p.nic, func(ctx context.Context) error {
		_, err := s.nics.BeginCreateOrUpdate(ctx, p.nic.group, p.nic.name, newNIC(p.nic.name, s.subnet(spec), spec, p.tags), nil)
		return err
	})
	if err != nil {
		return resource{}, err
	}
	if p.dataDisks, err = s.disksFromImages(ctx, req.Target, p); err != nil {
		return resource{}, err
	}
	if p.sshKey = strings.TrimSpace(spec.Properties.OSProfile.LinuxConfiguration.SSH.PublicKeys.KeyData); p.sshKey == "" {
		if p.sshKey, err = uselessSSHKey(); err != nil {
			return resource{}, driver.Errorf(s.op, driver.Internal, "make an SSH key: %w", err)
		}
	}
	_, err = send(ctx, s, func(ctx context.Context) (any, error) {
		return s.vms.BeginCreateOrUpdate(ctx, p.vm.group, p.vm.name, newVM(p),
			&armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfNoneMatch: to.Ptr("*")})
	})
	if err != nil {
		return resource{}, err
	}
	return resource{id: p.vm, address: nic.address}, nil
}

// subnet returns the ID of the subnet of a provider spec.
func (s *session) subnet(spec ProviderSpec) string {
	group := value(spec.SubnetInfo.VnetResourceGroup)
	if group == "" {
		group = spec.ResourceGroup
	}
	return "/subscriptions/" + s.subscription + "/resourceGroups/" + group + "/providers/Microsoft.Network/virtualNetworks/" +
		spec.SubnetInfo.VnetName + "/subnets/" + spec.SubnetInfo.SubnetName
}

// disksFromImages makes the data disks that have an image, and returns them by LUN.
func (s *session) disksFromImages(ctx context.Context, t driver.Target, p parts) (map[int32]resourceID, error) {
	made := map[int32]resourceID{}
	for _, disk := range p.spec.Properties.StorageProfile.DataDisks {
		if disk.ImageRef == nil {
			continue
		}
		imageID := ""
		if urn := value(disk.ImageRef.URN); urn != "" {
			image, err := s.market(ctx, p.spec.Location, urn, false)
			if err != nil {
				return nil, err
			}
			imageID = image.id
		}
		id := s.id(typeDisk, dataDiskName(p.vm.name, disk))
		if _, err := s.ensure(ctx, t, id, func(ctx context.Context) error {
			_, err := s.disks.BeginCreateOrUpdate(ctx, id.group, id.name, newDisk(p.spec, disk, imageID, p.tags), nil)
			return err
		}); err != nil {
			return nil, err
		}
		made[disk.Lun] = id
	}
	return made, nil
}

// ensure returns a network interface or a disk of the Machine, and makes one if there is none. Errors: Unavailable while it is being
// made, AlreadyExists for one of another Machine.
func (s *session) ensure(ctx context.Context, t driver.Target, id resourceID, put func(context.Context) error) (resource, error) {
	r, found, err := s.read(ctx, id)
	if err != nil {
		return resource{}, err
	}
	if !found {
		if r, err = s.put(ctx, id, put); err != nil {
			return resource{}, err
		}
	}
	switch {
	case r.tags[TagMachineUID] != string(t.Machine.UID):
		return resource{}, driver.Errorf(s.op, driver.AlreadyExists, "%s exists and is not of this Machine; delete it, or rename the Machine", id.name)
	case r.is(stateDeleting), r.is(stateFailed):
		return resource{}, driver.Errorf(s.op, driver.Aborted, "%s, which an earlier create has made, is in the state %s", id.name, r.state)
	case !r.is(stateSucceeded):
		failure := driver.Errorf(s.op, driver.Unavailable, "%s is being made", id.name)
		failure.RetryAfter = underWayFor
		return resource{}, failure
	}
	return r, nil
}

// put makes a network interface or a disk, and returns what the cloud has accepted.
func (s *session) put(ctx context.Context, id resourceID, put func(context.Context) error) (resource, error) {
	return send(ctx, s, func(ctx context.Context) (resource, error) {
		var resp *http.Response
		if err := put(policy.WithCaptureResponse(ctx, &resp)); err != nil {
			return resource{}, err
		}
		body, err := runtime.Payload(resp)
		if err != nil {
			return resource{}, err
		}
		var r resource
		if id.kind == typeNIC {
			var nic armnetwork.Interface
			err = nic.UnmarshalJSON(body)
			r = nicOf(&nic)
		} else {
			var disk armcompute.Disk
			err = disk.UnmarshalJSON(body)
			r = diskOf(&disk)
		}
		if err == nil && !r.id.same(id) {
			err = errors.New("the cloud answered about another resource")
		}
		return r, err
	})
}
