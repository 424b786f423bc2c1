package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// testCloud is a cloud in memory with configurable faults.
type testCloud struct {
	made    func(*testVM)        // called for every new VM
	deletes func()               // called before a VM is deleted; nil without a callback
	stops   time.Duration        // that a VM takes from its deletion to its end
	ended   map[string]types.UID // the machines of VMs that are ending or have ended, by provider ID; nil: the cloud forgets them
	notes   bool                 // leaves a note with each answer to a create or a delete, an error too, and wants it back
	// remembers makes creates find the existing VM. Without it, each creates another one, so that drivers that can list VMs do not
	// depend on it.
	remembers bool

	// leaves has creates that fail leave a network interface, until the machine's DeleteMachine.
	leaves bool

	// bare are VMs without a UID, by provider ID, and the names of their machines.
	bare map[string]string

	mu    sync.Mutex
	vms   map[types.UID]*testVM // by UID of the machine
	ever  int                   // VMs made so far
	left  map[types.UID]bool    // machines with a network interface and without a VM
	fault func(op driver.Op) *testFault
	calls []testCall
}

type testVM struct {
	driver.VM

	ready bool      // set up
	ends  time.Time // when it has stopped; zero before its deletion
}

// testFault is how a call fails.
type testFault struct {
	code       driver.Code
	retryAfter time.Duration
	// takesEffect reports whether the call does what it should, and fails all the same.
	takesEffect bool
	// hangs reports whether the call gets no answer, so that the caller has to time out by itself.
	hangs bool
	// isBare reports whether the driver returns the error of its HTTP client, without a code.
	isBare bool
}

// testCall is a call that the cloud got.
type testCall struct {
	op       driver.Op
	at       time.Time // when it began
	failed   bool
	userData string
	note     string // that was handed back
}

// note is what the driver leaves itself with its latest answer.
func (c *testCloud) note() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.notes {
		return ""
	}
	return fmt.Sprintf("%d calls", len(c.calls))
}

// handedBack notes in the log what the latest call has brought.
func (c *testCloud) handedBack(note string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[len(c.calls)-1].note = note
}

// fails has calls of the operations fail from now on, all operations if none is given.
func (c *testCloud) fails(fault testFault, ops ...driver.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = func(op driver.Op) *testFault {
		if len(ops) > 0 && !slices.Contains(ops, op) {
			return nil
		}
		return &fault
	}
}

// works has no call fail from now on.
func (c *testCloud) works() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = nil
}

// log returns the calls of an operation, of all when it is "".
func (c *testCloud) log(op driver.Op) (found []testCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if op == "" || call.op == op {
			found = append(found, call)
		}
	}
	return found
}

// counts returns how many VMs there are, and were ever made.
func (c *testCloud) counts() (now, ever int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.vms), c.ever
}

// areReady reports whether all VMs are set up.
func (c *testCloud) areReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, vm := range c.vms {
		if !vm.ready {
			return false
		}
	}
	return true
}

// boots reports whether the VM is still there when it has booted.
func (c *testCloud) boots(vm *testVM) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(c.vms)), vm)
}

// call carries out one call, and fails if it is to.
func (c *testCloud) call(ctx context.Context, op driver.Op, userData []byte, effect func() error) error {
	fault, err := c.carryOut(op, userData, effect)
	switch {
	case fault == nil:
		return err
	case fault.isBare:
		return errors.New("connection reset by peer")
	case fault.hangs:
		<-ctx.Done()
		return &driver.Error{Code: driver.DeadlineExceeded, Op: op, Err: ctx.Err()}
	}
	return &driver.Error{Code: fault.code, Op: op, RetryAfter: fault.retryAfter, Err: errors.New("injected by the test")}
}

func (c *testCloud) carryOut(op driver.Op, userData []byte, effect func() error) (*testFault, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fault *testFault
	if c.fault != nil {
		fault = c.fault(op)
	}
	var err error
	if fault == nil || fault.takesEffect {
		err = effect()
	}
	c.calls = append(c.calls, testCall{op: op, at: time.Now(), failed: fault != nil, userData: string(userData)})
	return fault, err
}

// CreateMachine is driver.Driver's.
func (c *testCloud) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	var vm driver.VM
	err := c.call(ctx, driver.OpCreate, req.UserData, func() error {
		found, known := c.vms[req.Machine.UID]
		if !known || !c.remembers {
			c.ever++
			found = &testVM{VM: driver.VM{ProviderID: fmt.Sprintf("test:///i-%d", c.ever), NodeName: req.Machine.Name}}
			if c.vms == nil {
				c.vms = map[types.UID]*testVM{}
			}
			c.vms[req.Machine.UID] = found
			c.made(found)
		}
		vm = found.VM
		return nil
	})
	c.handedBack(req.Machine.Status.LastKnownState)
	c.noteLeftovers(req.Machine.UID)
	if err != nil {
		return driver.CreateMachineResponse{LastKnownState: c.note()}, err
	}
	return driver.CreateMachineResponse{VM: vm, LastKnownState: c.note()}, nil
}

// noteLeftovers keeps a network interface of a create that has made no VM, if creates are to leave some.
func (c *testCloud) noteLeftovers(machine types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil {
		c.left = map[types.UID]bool{}
	}
	if c.vms[machine] != nil || !c.leaves {
		delete(c.left, machine)
		return
	}
	c.left[machine] = true
}

// leftovers returns the machines with a network interface and without a VM.
func (c *testCloud) leftovers() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.left))
}

// InitializeMachine is driver.Driver's.
func (c *testCloud) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	err := c.call(ctx, driver.OpInitialize, nil, func() error {
		vm, known := c.vms[req.Machine.UID]
		if !known {
			return driver.Errorf(driver.OpInitialize, driver.NotFound, "no VM")
		}
		vm.ready = true
		return nil
	})
	return driver.InitializeMachineResponse{}, err
}

// DeleteMachine is driver.Driver's.
func (c *testCloud) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	ends, isLeft, owned := time.Now(), false, false
	err := c.call(ctx, driver.OpDelete, nil, func() error {
		if name, isBare := c.bare[req.Machine.Spec.ProviderID]; isBare {
			if isLeft = !req.Adopt || name != req.Machine.Name; !isLeft {
				delete(c.bare, req.Machine.Spec.ProviderID)
			}
		}
		delete(c.left, req.Machine.UID)
		vm, known := c.vms[req.Machine.UID]
		if known && c.deletes != nil {
			c.deletes()
		}
		if known && c.ended != nil {
			c.ended[vm.ProviderID] = req.Machine.UID
		}
		owned = req.Machine.Spec.ProviderID != "" && c.ended[req.Machine.Spec.ProviderID] == req.Machine.UID
		if known && c.stops > 0 {
			if vm.ends.IsZero() {
				vm.ends = ends.Add(c.stops)
			}
			ends = vm.ends
		}
		if !ends.After(time.Now()) {
			delete(c.vms, req.Machine.UID)
		}
		return nil
	})
	c.handedBack(req.Machine.Status.LastKnownState)
	return driver.DeleteMachineResponse{Gone: err == nil && !ends.After(time.Now()), LastKnownState: c.note(), Left: isLeft, Owned: owned}, err
}

// GetMachineStatus is driver.Driver's.
func (c *testCloud) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	var vm *testVM
	err := c.call(ctx, driver.OpStatus, nil, func() error {
		vm = c.vms[req.Machine.UID]
		return nil
	})
	switch {
	case err != nil:
		return driver.GetMachineStatusResponse{}, err
	case vm == nil || !vm.ends.IsZero():
		return driver.GetMachineStatusResponse{}, driver.Errorf(driver.OpStatus, driver.NotFound, "no VM")
	case !vm.ready:
		return driver.GetMachineStatusResponse{VM: vm.VM}, driver.Errorf(driver.OpStatus, driver.Uninitialized, "not set up")
	}
	return driver.GetMachineStatusResponse{VM: vm.VM}, nil
}

// ListMachines is driver.Driver's.
func (c *testCloud) ListMachines(context.Context, driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	return driver.ListMachinesResponse{}, driver.Errorf(driver.OpList, driver.Unimplemented, "not called")
}

// GetUnknownFields is driver.Driver's. It makes no call of the cloud.
func (*testCloud) GetUnknownFields(_ context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	return driver.UnknownFields(req.Class.ProviderSpec.Raw, struct{ Size string }{})
}

// GetVolumeIDs is driver.Driver's. The cloud knows its own volumes, which are attached without CSI.
func (c *testCloud) GetVolumeIDs(ctx context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	var ids []string
	err := c.call(ctx, driver.OpVolumeIDs, nil, func() error {
		for _, v := range req.Volumes {
			if v.AWSElasticBlockStore != nil {
				ids = append(ids, v.AWSElasticBlockStore.VolumeID)
			}
		}
		return nil
	})
	return driver.GetVolumeIDsResponse{IDs: ids}, err
}
