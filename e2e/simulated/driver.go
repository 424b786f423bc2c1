package simulated

import (
	"context"
	"maps"
	"net/http"
	"net/url"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Provider is the name in MachineClass.provider.
const Provider = "simulated"

// Config configures a Driver.
type Config struct {
	// Endpoints are the URLs of all clouds that requests may go to. The first is for classes whose
	// Secret names none.
	Endpoints []string
	// Transport opens the connections; nil means httpclient.Transport().
	Transport http.RoundTripper
	// Wrap, if set, wraps the transport, as rest.Config.Wrap does for Kubernetes.
	Wrap func(http.RoundTripper) http.RoundTripper
	// UserAgent names the caller in the cloud's call log.
	UserAgent string
}

// Driver is the driver of the simulated cloud. It has no state.
type Driver struct {
	endpoints httpclient.Endpoints
	client    *httpclient.Client
	userAgent string
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
)

// New returns a Driver. It sends no request. Errors: invalid endpoints.
func New(cfg Config) (*Driver, error) {
	endpoints, err := httpclient.ParseEndpoints(cfg.Endpoints)
	if err != nil {
		return nil, err
	}
	transport := cfg.Transport
	if transport == nil {
		transport = httpclient.Transport()
	}
	if cfg.Wrap != nil {
		transport = cfg.Wrap(transport)
	}
	return &Driver{endpoints: endpoints, client: httpclient.New(transport), userAgent: cfg.UserAgent}, nil
}

// CreateMachine creates the VM. The client token makes the cloud find an earlier one, so that no
// request looks for it first; only when the cloud answers that the parameters of the earlier create
// were others, which happens when the class or the bootstrap token has changed in between, a second
// request finds that VM by its tag. A VM that was created for the Machine before and has ended is
// Aborted: no request will ever create another one for this Machine.
func (d *Driver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	m := req.Machine
	if m.UID == "" {
		return driver.CreateMachineResponse{}, driver.Errorf(driver.OpCreate, driver.InvalidArgument, "the Machine has no UID")
	}
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.CreateMachineResponse{}, driver.Errorf(driver.OpCreate, driver.InvalidArgument, "%w", err)
	}
	tags := maps.Clone(spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[TagCluster], tags[TagMachine], tags[TagMachineUID] = req.Class.Namespace, m.Name, string(m.UID)
	if req.ControlCluster != "" {
		tags[TagControlCluster] = req.ControlCluster
	}
	var created cloudapi.Instance
	err = d.do(ctx, call{
		op: driver.OpCreate, secret: req.Secret, method: http.MethodPost, path: cloudapi.PathInstances,
		body: cloudapi.CreateInstanceRequest{
			Name: m.Name, ClientToken: string(m.UID), Region: spec.Region, Zone: spec.Zone, InstanceType: spec.InstanceType,
			Image: spec.Image, Network: spec.Network, Tags: tags, Boot: spec.Boot, UserData: req.UserData, DataVolumes: spec.DataVolumes,
		},
	}, &created)
	if driver.CodeOf(err) == driver.AlreadyExists {
		mismatch := err
		if created, err = d.findByUID(ctx, driver.OpCreate, req.Target); driver.CodeOf(err) == driver.NotFound {
			err = mismatch
		}
	}
	if err == nil {
		err = verify(driver.OpCreate, created, created.ID, m.Name)
	}
	switch {
	case err != nil:
		return driver.CreateMachineResponse{}, err
	case !alive(created):
		return driver.CreateMachineResponse{}, driver.Errorf(driver.OpCreate, driver.Aborted,
			"VM %s, which was created for this Machine, is %s: %s; a Machine gets one VM in its life",
			created.ProviderID, created.State, created.StateReason)
	}
	return driver.CreateMachineResponse{VM: describe(created)}, nil
}

// InitializeMachine sets what can only be set after the create. A provider spec without such a
// field is Unimplemented. It sends a second request when the Machine's provider ID is not known
// yet. The cloud checks in the same request that the VM is the Machine's.
func (d *Driver) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.InvalidArgument, "%w", err)
	}
	if spec.SourceDestCheck == nil {
		return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.Unimplemented,
			"the provider spec has no field that is set after the create")
	}
	id, known := parseProviderID(req.Machine.Spec.ProviderID)
	conditions := owned(req.Target)
	if !known {
		found, err := d.findByUID(ctx, driver.OpInitialize, req.Target)
		if err != nil {
			return driver.InitializeMachineResponse{}, err
		}
		id, conditions = found.ID, []url.Values{hasUID(req.Target)}
	}
	var vm cloudapi.Instance
	for _, condition := range conditions {
		if err = d.do(ctx, call{
			op: driver.OpInitialize, secret: req.Secret, method: http.MethodPatch, path: pathOf(cloudapi.PathInstanceAttributes, id),
			query: condition, body: cloudapi.InstanceAttributes{SourceDestCheck: spec.SourceDestCheck},
		}, &vm); driver.CodeOf(err) != driver.FailedPrecondition {
			break
		}
	}
	if driver.CodeOf(err) == driver.FailedPrecondition {
		err = driver.Errorf(driver.OpInitialize, driver.NotFound, "VM %s does not have the UID of this Machine", req.Machine.Spec.ProviderID)
	}
	if err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	if err := verify(driver.OpInitialize, vm, id, req.Machine.Name); err != nil {
		return driver.InitializeMachineResponse{}, err
	}
	return driver.InitializeMachineResponse{VM: describe(vm)}, nil
}

// DeleteMachine removes the VM with the Machine's provider ID, for which the cloud checks in the
// same request whose it is. Where there is none that is the Machine's it sends one request more,
// which looks for those with its UID, and one for each of them; of more than driver.MaxOwned the
// others are removed by the next calls. When no VM is left, one request removes what a create has
// left that failed before it created the VM. The provider spec does not matter: a broken one does
// not prevent the deletion.
func (d *Driver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	if req.Machine.UID == "" {
		return driver.DeleteMachineResponse{}, withoutUID(driver.OpDelete, req.Target)
	}
	var resp driver.DeleteMachineResponse
	if id, ok := parseProviderID(req.Machine.Spec.ProviderID); ok {
		for _, condition := range owned(req.Target) {
			vm, err := d.remove(ctx, driver.OpDelete, req.Secret, id, condition)
			switch driver.CodeOf(err) { //nolint:exhaustive // all others are failures
			case driver.OK:
				if meets(vm, condition) { // else it had ended, and the condition was not checked
					return driver.DeleteMachineResponse{Gone: vm.State == cloudapi.StateTerminated, Owned: true}, nil
				}
			case driver.FailedPrecondition:
				resp.Left = true
			case driver.NotFound:
			default:
				return driver.DeleteMachineResponse{}, err
			}
		}
	}
	var err error
	if resp.Gone, err = d.removeByUID(ctx, req.Target); err == nil && resp.Gone {
		err = d.removeLeftovers(ctx, req.Target)
	}
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	return resp, nil
}

// remove begins to terminate a VM that meets a condition. Errors: FailedPrecondition when it exists
// and does not meet it.
func (d *Driver) remove(
	ctx context.Context, op driver.Op, secret map[string][]byte, id string, condition url.Values,
) (vm cloudapi.Instance, err error) {
	err = d.do(ctx, call{op: op, secret: secret, method: http.MethodDelete, path: pathOf(cloudapi.PathInstance, id), query: condition}, &vm)
	if err == nil {
		err = verify(op, vm, id, vm.Name)
	}
	return vm, err
}

// GetMachineStatus looks for the VM with the Machine's provider ID or, when there is none that is
// the Machine's, with its UID, for which it sends one request more. A provider spec that cannot be
// decoded requires no initialization: it must not hide a VM that exists.
func (d *Driver) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	vm, left, err := d.find(ctx, driver.OpStatus, req.Target)
	if err != nil {
		return driver.GetMachineStatusResponse{Left: left}, err
	}
	resp := driver.GetMachineStatusResponse{VM: describe(vm), Left: left}
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err == nil && spec.SourceDestCheck != nil && *spec.SourceDestCheck != vm.SourceDestCheck {
		return resp, driver.Errorf(driver.OpStatus, driver.Uninitialized, "sourceDestCheck of VM %s is %t", vm.ProviderID, vm.SourceDestCheck)
	}
	return resp, nil
}

// ListMachines returns the VMs that have not begun to end, of all classes in the namespace of the
// class.
func (d *Driver) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	machines := map[string]string{}
	err := d.eachPage(ctx, list{
		op: driver.OpList, secret: req.Secret, tags: []string{TagCluster + "=" + req.Class.Namespace},
		states: []cloudapi.InstanceState{cloudapi.StatePending, cloudapi.StateRunning},
		limits: httpclient.Page(), size: cloudapi.MaxPageSize, pages: maxPages,
	}, func(page cloudapi.InstanceList) (more bool, err error) {
		for _, vm := range page.Items {
			machines[vm.ProviderID] = vm.Name
		}
		if len(machines) > driver.MaxListed {
			return false, driver.Errorf(driver.OpList, driver.Internal, "the cloud listed more than %d VMs", driver.MaxListed)
		}
		return true, nil
	})
	if err != nil {
		return driver.ListMachinesResponse{}, err
	}
	return driver.ListMachinesResponse{Machines: machines}, nil
}

// GetUnknownFields returns the fields that ParseProviderSpec rejects, or else what it rejects
// otherwise. It sends no request.
func (*Driver) GetUnknownFields(_ context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	resp, err := driver.CheckFields(req.Class.ProviderSpec.Raw, ParseProviderSpec)
	resp.Refused = len(resp.Fields) > 0
	return resp, err
}

// GetVolumeIDs returns the IDs of volumes of the cloud's CSI driver. It sends no request.
func (d *Driver) GetVolumeIDs(_ context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	var ids []string
	for _, v := range req.Volumes {
		if v != nil && v.CSI != nil && v.CSI.Driver == cloudapi.CSIDriver && v.CSI.VolumeHandle != "" {
			ids = append(ids, v.CSI.VolumeHandle)
		}
	}
	return driver.GetVolumeIDsResponse{IDs: ids}, nil
}
