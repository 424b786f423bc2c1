package aws

import (
	"context"
	"net/http"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/unseen"
)

// Provider is the name in MachineClass.provider.
const Provider = "AWS"

// csiDriver is the name of the CSI driver for EBS.
const csiDriver = "ebs.csi.aws.com"

// maxRootDevices is how many images are kept in memory with the name of their root device.
const maxRootDevices = 1024

// Config configures a Driver.
type Config struct {
	// Endpoints are the URLs of EC2 that requests may go to, the first of them for Secrets that name
	// none. Without any the requests go to AWS, in the region of the class, and a Secret must not name
	// one.
	Endpoints []string
	// STSEndpoint is the URL of STS; "" means that of AWS in the region of the class.
	STSEndpoint string
	// TokenDirs are the folders whose files a Secret may name as the token of a workload identity.
	// Each tenant may name each of the files.
	TokenDirs []string
	// Transport creates the connections; nil means httpclient.Transport().
	Transport http.RoundTripper
	// Wrap, if set, wraps the transport, as rest.Config.Wrap does for Kubernetes.
	Wrap func(http.RoundTripper) http.RoundTripper
	// UserAgent names the caller in the cloud's log.
	UserAgent string
	// Clock is the time; nil means the system's.
	Clock clock.PassiveClock
}

// Driver is the driver of Amazon EC2. Its state is a cache of clients, with their temporary
// credentials, and of what does not change.
type Driver struct {
	cfg       Config
	endpoints httpclient.Endpoints
	http      answers
	userAgent string
	clock     clock.PassiveClock
	accounts  *lru.Cache // of *account by accountKey
	roots     *lru.Cache // names of root devices by imageKey
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
)

// Validate returns an error for endpoints that are invalid; all fields are optional.
func (c Config) Validate() error {
	_, err := httpclient.ParseEndpoints(c.Endpoints)
	if err == nil && c.STSEndpoint != "" {
		_, err = httpclient.ParseEndpoints([]string{c.STSEndpoint})
	}
	return err
}

// New returns a Driver. It sends no request. Errors: those of Config.Validate.
func New(cfg Config) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
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
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Driver{
		cfg: cfg, endpoints: endpoints, http: answers{httpclient.New(transport)}, userAgent: cfg.UserAgent, clock: cfg.Clock,
		accounts: lru.New(maxAccounts), roots: lru.New(maxRootDevices),
	}, nil
}

// CreateMachine creates the VM. With the client token EC2 finds an earlier one. A request before
// looks for it only when the token may have been forgotten, and one after when the parameters of
// the earlier create were others, because the class or the bootstrap token has changed in between.
// Another request reads the name of the image's root device, once for each image.
func (d *Driver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	in, a, err := d.prepare(ctx, req)
	if err != nil {
		return driver.CreateMachineResponse{}, err
	}
	now := driver.Now(ctx, d.clock.Now())
	if tokenMayBeForgotten(req.Machine, now) {
		if vm, err := a.createdBefore(ctx, req.Target); driver.CodeOf(err) != driver.NotFound {
			return a.created(req.Target, vm, err, "")
		}
	}
	requested := unseen.Note(now)
	out, err := a.ec2.RunInstances(ctx, in)
	switch {
	case codeIs(err, codeTokenMismatch):
		mismatch := a.failed(ctx, driver.OpCreate, err)
		vm, err := a.createdBefore(ctx, req.Target)
		if driver.CodeOf(err) == driver.NotFound {
			err = mismatch // its VM is not shown yet, or not any more
		}
		return a.created(req.Target, vm, err, "")
	case err != nil:
		failure := a.failed(ctx, driver.OpCreate, err)
		if !unseen.MayFollow(failure.Code) {
			requested = ""
		}
		return driver.CreateMachineResponse{LastKnownState: requested}, failure
	case len(out.Instances) != 1:
		return driver.CreateMachineResponse{LastKnownState: requested}, driver.Errorf(driver.OpCreate, driver.Internal,
			"the cloud answered with %d VMs; expected one", len(out.Instances))
	}
	vm := out.Instances[0]
	if err = verifyID(driver.OpCreate, vm); err == nil && len(vm.Tags) > 0 { // without tags the token is the evidence
		err = verify(driver.OpCreate, vm, req.Target)
	}
	return a.created(req.Target, vm, err, requested)
}

// prepare returns the request for a VM. Errors: InvalidArgument, and those of the request for the
// image.
func (d *Driver) prepare(ctx context.Context, req driver.CreateMachineRequest) (*ec2.RunInstancesInput, *account, error) {
	wrong := func(err error) (*ec2.RunInstancesInput, *account, error) {
		return nil, nil, driver.Errorf(driver.OpCreate, driver.InvalidArgument, "%w", err)
	}
	if req.Machine.UID == "" {
		return nil, nil, withoutUID(driver.OpCreate, req.Target)
	}
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return wrong(err)
	}
	placement, err := placementOf(spec, req.Machine)
	if err != nil {
		return wrong(err)
	}
	if len(req.UserData) > maxUserData {
		return nil, nil, driver.Errorf(driver.OpCreate, driver.InvalidArgument,
			"the user data has %d bytes; EC2 accepts at most %d; have the VM fetch the rest", len(req.UserData), maxUserData)
	}
	a, err := d.account(driver.OpCreate, req.Class, req.Secret)
	if err != nil {
		return nil, nil, err
	}
	root := ""
	if needsRootDevice(spec) {
		if root, err = a.rootDevice(ctx, spec.AMI); err != nil {
			return nil, nil, err
		}
	}
	return runInput(spec, placement, req.Target, req.UserData, root), a, nil
}

// created returns the answer of a create that has found or created a VM.
func (a *account) created(target driver.Target, vm types.Instance, err error, requested string) (driver.CreateMachineResponse, error) {
	resp := driver.CreateMachineResponse{LastKnownState: requested}
	switch {
	case err != nil:
		return resp, err
	case isEnding(vm):
		reason := ""
		if vm.StateReason != nil {
			reason = ": " + sdk.ToString(vm.StateReason.Message)
		}
		return resp, driver.Errorf(driver.OpCreate, driver.Aborted,
			"VM %s, which was created for Machine %q, is %s%s; a Machine gets one VM in its life",
			a.providerID(vm), target.Machine.Name, vm.State.Name, reason)
	case sdk.ToString(vm.PrivateDnsName) == "":
		return resp, driver.Pendingf(driver.OpCreate, driver.Unavailable,
			"VM %s has no private DNS name yet, which is the name of its Node", a.providerID(vm))
	}
	resp.VM = a.describe(vm)
	return resp, nil
}

// imageKey identifies an image: an account may have no access to an image of another one.
type imageKey struct {
	account accountKey
	ami     string
}

// rootDevice returns the name of an image's root device, which never changes.
func (a *account) rootDevice(ctx context.Context, ami string) (string, error) {
	key := imageKey{a.key, ami}
	known, _ := a.driver.roots.Get(key)
	if name, ok := known.(string); ok {
		return name, nil
	}
	out, err := a.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{ami}})
	if err != nil {
		return "", a.failed(ctx, driver.OpCreate, err)
	}
	if len(out.Images) == 0 {
		return "", driver.Errorf(driver.OpCreate, driver.InvalidArgument,
			"providerSpec.ami: the account has no access to an image %q in region %s", ami, a.region)
	}
	if name := sdk.ToString(out.Images[0].RootDeviceName); len(out.Images) == 1 && sdk.ToString(out.Images[0].ImageId) == ami && isPath(name) {
		a.driver.roots.Add(key, name)
		return name, nil
	}
	return "", driver.Errorf(driver.OpCreate, driver.Internal,
		"the cloud answered with %d images, or another one; expected %q with a root device", len(out.Images), ami)
}

// isPath reports whether a text can be the name of a device.
func isPath(text string) bool {
	return strings.HasPrefix(text, "/") && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// GetMachineStatus looks for the VM with the Machine's provider ID or, when there is none that is
// the Machine's, with its UID, for which it sends one request more. A provider spec that cannot be
// decoded requires no initialization: it must not hide a VM that exists.
func (d *Driver) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	a, err := d.account(driver.OpStatus, req.Class, req.Secret)
	if err != nil {
		return driver.GetMachineStatusResponse{}, err
	}
	vm, look, err := a.find(ctx, driver.OpStatus, req.Target)
	switch {
	case driver.CodeOf(err) == driver.NotFound && look.isUnknown &&
		unseen.IsRecent(unseen.RequestedAt(req.Machine), driver.Now(ctx, d.clock.Now()), settleTime):
		return driver.GetMachineStatusResponse{}, driver.Pendingf(driver.OpStatus, driver.Unavailable,
			"the cloud does not show VM %s yet, which it accepted at %s", req.Machine.Spec.ProviderID, unseen.RequestedAt(req.Machine))
	case err != nil:
		return driver.GetMachineStatusResponse{Left: look.left}, err
	}
	resp := driver.GetMachineStatusResponse{VM: a.describe(vm), Left: look.left}
	if spec, err := decode(req.Class.ProviderSpec.Raw); err == nil {
		if missing := toInitialize(spec, vm); len(missing) > 0 {
			return resp, driver.Errorf(driver.OpStatus, driver.Uninitialized, "VM %s: %s", a.providerID(vm), strings.Join(texts(missing), "; "))
		}
	}
	return resp, nil
}

// ListMachines returns the VMs that have not begun to end and have the cluster's and the role's
// tags of the class.
func (d *Driver) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	spec, err := ParseProviderSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.ListMachinesResponse{}, driver.Errorf(driver.OpList, driver.InvalidArgument, "%w", err)
	}
	a, err := d.account(driver.OpList, req.Class, req.Secret)
	if err != nil {
		return driver.ListMachinesResponse{}, err
	}
	filters := []types.Filter{inStates(alive()...)}
	for _, key := range clusterKeys(spec) {
		filters = append(filters, filter("tag-key", key))
	}
	machines := map[string]string{}
	err = a.eachPage(ctx, list{op: driver.OpList, filters: filters, size: pageSize, pages: maxPages},
		func(page []types.Instance, _ bool) (more bool, err error) {
			for _, vm := range page {
				machines[a.providerID(vm)] = nameOf(vm)
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

// GetUnknownFields returns the fields that are no fields of ProviderSpec, or else what
// ParseProviderSpec rejects. It sends no request.
func (*Driver) GetUnknownFields(_ context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	return driver.CheckFields(req.Class.ProviderSpec.Raw, ParseProviderSpec)
}

// GetVolumeIDs returns the IDs of EBS volumes, of the CSI driver and of Kubernetes' own. It sends
// no request.
func (d *Driver) GetVolumeIDs(_ context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	var ids []string
	for _, v := range req.Volumes {
		switch {
		case v == nil:
		case v.CSI != nil && v.CSI.Driver == csiDriver && v.CSI.VolumeHandle != "":
			ids = append(ids, v.CSI.VolumeHandle)
		case v.AWSElasticBlockStore != nil:
			// aws://<zone>/<volume>, or the volume alone
			if id := v.AWSElasticBlockStore.VolumeID; isID(id[strings.LastIndex(id, "/")+1:], volumePrefix) {
				ids = append(ids, id[strings.LastIndex(id, "/")+1:])
			}
		}
	}
	return driver.GetVolumeIDsResponse{IDs: ids}, nil
}
