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

// testCloud is a cloud in memory that fails as it is told to.
type testCloud struct {
	made func(*testVM) // hears of every new VM

	mu    sync.Mutex
	vms   map[types.UID]*testVM // by UID of the machine
	ever  int                   // VMs made so far
	fault func(op driver.Op) *testFault
	calls []testCall
}

type testVM struct {
	driver.VM

	ready bool // set up
}

// testFault is how a call fails.
type testFault struct {
	code       driver.Code
	retryAfter time.Duration
	// takesEffect says that the call does what it should, and fails all the same.
	takesEffect bool
}

// testCall is a call that the cloud got.
type testCall struct {
	op       driver.Op
	at       time.Time
	failed   bool
	userData string
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

// boots says whether the VM is still there when it has booted.
func (c *testCloud) boots(vm *testVM) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(c.vms)), vm)
}

// call carries out one call. effect may be nil for calls that change nothing.
func (c *testCloud) call(op driver.Op, userData []byte, effect func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fault *testFault
	if c.fault != nil {
		fault = c.fault(op)
	}
	var err error
	if effect != nil && (fault == nil || fault.takesEffect) {
		err = effect()
	}
	c.calls = append(c.calls, testCall{op: op, at: time.Now(), failed: fault != nil, userData: string(userData)})
	if fault != nil {
		return &driver.Error{Code: fault.code, Op: op, RetryAfter: fault.retryAfter, Err: errors.New("so it was told")}
	}
	return err
}

// CreateMachine is driver.Driver's.
func (c *testCloud) CreateMachine(_ context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	var vm driver.VM
	err := c.call(driver.OpCreate, req.UserData, func() error {
		found, known := c.vms[req.Machine.UID]
		if !known {
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
	if err != nil {
		return driver.CreateMachineResponse{}, err
	}
	return driver.CreateMachineResponse{VM: vm}, nil
}

// InitializeMachine is driver.Driver's.
func (c *testCloud) InitializeMachine(_ context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	err := c.call(driver.OpInitialize, nil, func() error {
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
func (c *testCloud) DeleteMachine(_ context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	err := c.call(driver.OpDelete, nil, func() error {
		delete(c.vms, req.Machine.UID)
		return nil
	})
	return driver.DeleteMachineResponse{Gone: err == nil}, err
}

// GetMachineStatus is driver.Driver's.
func (c *testCloud) GetMachineStatus(_ context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	var vm *testVM
	err := c.call(driver.OpStatus, nil, func() error {
		vm = c.vms[req.Machine.UID]
		return nil
	})
	switch {
	case err != nil:
		return driver.GetMachineStatusResponse{}, err
	case vm == nil:
		return driver.GetMachineStatusResponse{}, driver.Errorf(driver.OpStatus, driver.NotFound, "no VM")
	case !vm.ready:
		return driver.GetMachineStatusResponse{VM: vm.VM}, driver.Errorf(driver.OpStatus, driver.Uninitialized, "not set up")
	}
	return driver.GetMachineStatusResponse{VM: vm.VM}, nil
}

// ListMachines is driver.Driver's.
func (c *testCloud) ListMachines(context.Context, driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	return driver.ListMachinesResponse{}, driver.Errorf(driver.OpList, driver.Unimplemented, "nobody asks")
}

// GetVolumeIDs is driver.Driver's.
func (c *testCloud) GetVolumeIDs(context.Context, driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	return driver.GetVolumeIDsResponse{}, driver.Errorf(driver.OpVolumeIDs, driver.Unimplemented, "nobody asks")
}
