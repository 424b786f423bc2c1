package azure

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/unseen"
)

// underWayFor is how long a create waits before it looks again for a part that is being created.
const underWayFor = 5 * time.Second

// CreateMachine creates the VM in steps: the network interface, each data disk that has an image,
// and the VM. Each step first looks for what an earlier call has created, by its name and the
// Machine's UID, so that a call goes on where the one before has ended, regardless of which
// process. It waits for no operation of the cloud: while a disk is being created it is Unavailable,
// and the VM is returned as soon as the cloud has accepted it.
//
// A VM is created under the condition that there is none of that name. That takes six requests:
// four reads and two writes; one to three more for an image of the marketplace that was not used
// before, and three for each disk with an image.
func (d *Driver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	created, note, err := d.create(ctx, req)
	if err != nil {
		return driver.CreateMachineResponse{LastKnownState: note}, err
	}
	return driver.CreateMachineResponse{VM: describe(created), LastKnownState: note}, nil
}

// create returns the VM, and the note that one may have been created.
func (d *Driver) create(ctx context.Context, req driver.CreateMachineRequest) (vm resource, note string, err error) {
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return resource{}, "", driver.Errorf(driver.OpCreate, driver.InvalidArgument, "%w", err)
	}
	s, err := d.begin(driver.OpCreate, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return resource{}, "", err
	}
	switch name := req.Machine.Name; {
	case req.Machine.UID == "":
		return resource{}, "", s.withoutUID(req.Target)
	case len(name) > maxVMName || !isName(name):
		return resource{}, "",
			s.invalid("the name %q of the Machine cannot be that of a VM; expected at most %d letters, digits, - and .", name, maxVMName)
	case len(bytes.TrimSpace(req.UserData)) == 0:
		return resource{}, "", s.invalid("data[userData]: Required value")
	}
	found, v, err := s.vacancy(ctx, req.Target)
	if err != nil || v == nil {
		return found, "", err
	}
	sent := driver.Now(ctx, d.clock.Now())
	vm, err = s.assemble(ctx, req, spec, *v)
	if err != nil && !unseen.MayFollow(driver.CodeOf(err)) {
		return resource{}, "", err
	}
	return vm, unseen.Note(sent), err
}

// vacancy is a name for a new VM.
type vacancy struct {
	vm resourceID
	// nic is the Machine's network interface of that name; the zero value when there is none.
	nic resource
}

// vacancy returns the Machine's VM, if it has one, and otherwise a name for a new one: the first
// that no other Machine's VM or network interface has.
func (s *session) vacancy(ctx context.Context, t driver.Target) (vm resource, v *vacancy, err error) {
	var names []resourceID
	for _, id := range s.candidates(t) {
		vm, found, err := s.read(ctx, id)
		switch {
		case err != nil:
			return resource{}, nil, err
		case !found:
			names = append(names, id)
		case !s.isOwn(t, vm):
		case vm.is(stateDeleting):
			return resource{}, nil, driver.Errorf(s.op, driver.Aborted, "VM %s of this Machine is being deleted", id.name)
		default:
			return vm, nil, nil
		}
	}
	if s.noGroup != nil {
		return resource{}, nil, s.noGroup
	}
	for _, id := range names {
		nic, found, err := s.read(ctx, s.id(typeNIC, nicName(id.name)))
		if err != nil {
			return resource{}, nil, err
		}
		if !found || nic.isOf(t) {
			return resource{}, &vacancy{vm: id, nic: nic}, nil
		}
	}
	return resource{}, nil, driver.Errorf(s.op, driver.AlreadyExists,
		"resource group %s has resources of others with each of the names that the VM of Machine %s can have; delete them, "+
			"or use another resource group",
		s.at.resourceGroup, t.Machine.Name)
}

// assemble creates what is missing of a VM, and then the VM.
func (s *session) assemble(ctx context.Context, req driver.CreateMachineRequest, spec ProviderSpec, v vacancy) (resource, error) {
	p := parts{spec: spec, vm: v.vm, nic: s.id(typeNIC, nicName(v.vm.name)), userData: req.UserData, tags: tagsFor(req.Target, spec.Tags)}
	if image := spec.Properties.StorageProfile.ImageReference; value(image.URN) != "" && !image.SkipMarketplaceAgreement {
		found, err := s.market(ctx, spec.Location, *image.URN, true)
		if err != nil {
			return resource{}, err
		}
		p.plan = found.plan
	}
	nic, err := s.ensure(ctx, req.Target, p.nic, v.nic, func(ctx context.Context) error {
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
			return resource{}, driver.Errorf(s.op, driver.Internal, "create an SSH key: %w", err)
		}
	}
	_, err = send(ctx, s, func(ctx context.Context) (any, error) {
		return s.vms.BeginCreateOrUpdate(ctx, p.vm.group, p.vm.name, newVM(p),
			&armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfNoneMatch: new("*")})
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

// disksFromImages creates the data disks that have an image, and returns them by LUN.
func (s *session) disksFromImages(ctx context.Context, t driver.Target, p parts) (map[int32]resourceID, error) {
	created := map[int32]resourceID{}
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
		known, _, err := s.read(ctx, id)
		if err != nil {
			return nil, err
		}
		if _, err := s.ensure(ctx, t, id, known, func(ctx context.Context) error {
			_, err := s.disks.BeginCreateOrUpdate(ctx, id.group, id.name, newDisk(p.spec, disk, imageID, p.tags), nil)
			return err
		}); err != nil {
			return nil, err
		}
		created[disk.Lun] = id
	}
	return created, nil
}

// ensure returns a network interface or a disk of the Machine, and creates one if there is none;
// known contains what was read, or is the zero value. Errors: Unavailable while it is being
// created, AlreadyExists for one of another Machine.
func (s *session) ensure(
	ctx context.Context, t driver.Target, id resourceID, known resource, put func(context.Context) error,
) (resource, error) {
	if known.id == (resourceID{}) {
		_, err := send(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, put(ctx) })
		if err == nil { // the answer has not all of it
			known, _, err = s.read(ctx, id)
		}
		if err != nil {
			return resource{}, err
		}
	}
	switch {
	case known.id == (resourceID{}), known.isOf(t) && !known.is(stateSucceeded) && !known.is(stateDeleting) && !known.is(stateFailed):
		failure := driver.Pendingf(s.op, driver.Unavailable, "%s is being created", id.name)
		failure.RetryAfter = underWayFor
		return resource{}, failure
	case !known.isOf(t):
		return resource{},
			driver.Errorf(s.op, driver.AlreadyExists, "%s exists and is not of this Machine; delete it, or rename the Machine", id.name)
	case !known.is(stateSucceeded):
		return resource{},
			driver.Errorf(s.op, driver.Aborted, "%s, which an earlier create has created, is in the state %s", id.name, known.state)
	}
	return known, nil
}
