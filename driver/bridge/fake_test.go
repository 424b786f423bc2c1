package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

// cloud is a cloud with a driver of Machine Controller Manager, which has the habits of those: it
// has no idempotency tokens, identifies VMs by the names of their machines, and waits.
type cloud struct {
	mu      sync.Mutex
	vms     map[string]vm // by provider ID
	created int
	creates int
	failure drivertest.Failure
	healed  chan struct{}
	// hold, if set, blocks a create after its VM was created.
	hold chan struct{}
	// hidden has GetMachineStatus return Unimplemented.
	hidden bool
	// requests are the last ones.
	lastCreate *mcm.CreateMachineRequest
	lastStatus *mcm.GetMachineStatusRequest
}

type vm struct {
	name string
	uid  types.UID
}

func newCloud() *cloud { return &cloud{vms: map[string]vm{}} }

// spec is the provider spec.
type spec struct {
	Size string            `json:"size"`
	Tags map[string]string `json:"tags"`
}

// answers returns the error of a call to a cloud that fails, before its effect or after it.
func (c *cloud) answers(ctx context.Context, isCreate, after bool) error {
	c.mu.Lock()
	failure, healed := c.failure, c.healed
	c.mu.Unlock()
	switch {
	case failure == drivertest.LostAnswer && after, failure == drivertest.NoAnswer && !after:
		select {
		case <-healed:
		case <-ctx.Done():
		}
		if after {
			return nil // the answer is late
		}
		return status.Error(codes.Unavailable, "no answer")
	case after:
		return nil
	case failure == drivertest.Unreachable:
		return status.Error(codes.Unavailable, "cannot connect")
	case failure == drivertest.ServerError:
		return fmt.Errorf("call the cloud: %w", status.Error(codes.Internal, "error [500] of the server]"))
	case failure == drivertest.BadCredentials:
		return status.Error(codes.Unauthenticated, "who?")
	case failure == drivertest.Forbidden:
		return status.Error(codes.PermissionDenied, "no")
	case isCreate && (failure == drivertest.QuotaExceeded || failure == drivertest.NoCapacity):
		return status.Error(codes.ResourceExhausted, "full")
	}
	return nil
}

func (c *cloud) CreateMachine(ctx context.Context, req *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
	c.mu.Lock()
	c.lastCreate = req
	c.creates++
	c.mu.Unlock()
	var s spec
	if err := json.Unmarshal(req.MachineClass.ProviderSpec.Raw, &s); err != nil || s.Size == "" {
		return nil, status.Error(codes.InvalidArgument, "size is required")
	}
	if err := c.answers(ctx, true, false); err != nil {
		return nil, err
	}
	id := c.add(vm{req.Machine.Name, types.UID(s.Tags["machine-uid"])})
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &mcm.CreateMachineResponse{ProviderID: id, NodeName: req.Machine.Name}, c.answers(ctx, true, true)
}

func (c *cloud) add(created vm) (id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created++
	id = fmt.Sprintf("fake:///%d", c.created)
	c.vms[id] = created
	return id
}

func (*cloud) InitializeMachine(context.Context, *mcm.InitializeMachineRequest) (*mcm.InitializeMachineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "nothing to do")
}

func (c *cloud) DeleteMachine(ctx context.Context, req *mcm.DeleteMachineRequest) (*mcm.DeleteMachineResponse, error) {
	if err := c.answers(ctx, false, false); err != nil {
		return nil, err
	}
	c.mu.Lock()
	gone := 0
	for id, created := range c.vms {
		if created.name == req.Machine.Name {
			delete(c.vms, id)
			gone++
		}
	}
	c.mu.Unlock()
	if gone == 0 {
		return nil, status.Error(codes.NotFound, "no such VM")
	}
	return &mcm.DeleteMachineResponse{LastKnownState: "deleted"}, c.answers(ctx, false, true)
}

func (c *cloud) GetMachineStatus(ctx context.Context, req *mcm.GetMachineStatusRequest) (*mcm.GetMachineStatusResponse, error) {
	c.mu.Lock()
	c.lastStatus = req
	hidden := c.hidden
	c.mu.Unlock()
	if hidden {
		return nil, status.Error(codes.Unimplemented, "cannot look")
	}
	if err := c.answers(ctx, false, false); err != nil {
		return nil, err
	}
	found := c.named(req.Machine)
	switch len(found) {
	case 0:
		return nil, status.Error(codes.NotFound, "no such VM")
	case 1:
		return &mcm.GetMachineStatusResponse{ProviderID: found[0], NodeName: req.Machine.Name}, nil
	}
	return nil, status.Error(codes.OutOfRange, "several VMs")
}

func (c *cloud) named(m *v1alpha1.Machine) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, created := range c.vms {
		if created.name == m.Name {
			ids = append(ids, id)
		}
	}
	return ids
}

func (c *cloud) ListMachines(ctx context.Context, _ *mcm.ListMachinesRequest) (*mcm.ListMachinesResponse, error) {
	if err := c.answers(ctx, false, false); err != nil {
		return nil, err
	}
	list := map[string]string{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, created := range c.vms {
		list[id] = created.name
	}
	return &mcm.ListMachinesResponse{MachineList: list}, nil
}

func (*cloud) GetVolumeIDs(_ context.Context, req *mcm.GetVolumeIDsRequest) (*mcm.GetVolumeIDsResponse, error) {
	var resp mcm.GetVolumeIDsResponse
	for _, v := range req.PVSpecs {
		if v != nil && v.CSI != nil && v.CSI.Driver == "csi.fake" {
			resp.VolumeIDs = append(resp.VolumeIDs, v.CSI.VolumeHandle)
		}
	}
	return &resp, nil
}

// fail makes all calls fail until they are healed.
func (c *cloud) fail(t *testing.T, how drivertest.Failure) (heal func()) {
	t.Helper()
	switch how { //nolint:exhaustive // drivers of Machine Controller Manager report no time to wait, and their clients of clouds check answers
	case drivertest.Unreachable, drivertest.NoAnswer, drivertest.LostAnswer, drivertest.ServerError, drivertest.QuotaExceeded,
		drivertest.NoCapacity, drivertest.BadCredentials, drivertest.Forbidden:
	default:
		return nil
	}
	healed := make(chan struct{})
	c.mu.Lock()
	c.failure, c.healed = how, healed
	c.mu.Unlock()
	return sync.OnceFunc(func() {
		c.mu.Lock()
		c.failure = ""
		c.mu.Unlock()
		close(healed)
	})
}

// GetMachineStatus returns the error.
func (f failing) GetMachineStatus(context.Context, *mcm.GetMachineStatusRequest) (*mcm.GetMachineStatusResponse, error) {
	if errors.Is(f.err, errPanic) {
		panic("a defect")
	}
	if f.err != nil {
		return nil, f.err
	}
	return nil, nil // a driver that returns neither
}

// errPanic has a failing driver panic.
var errPanic = errors.New("panic")

func mcmMachine(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
