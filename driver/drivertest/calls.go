package drivertest

import (
	"context"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// defaultCallTimeout replaces a zero Env.CallTimeout.
const defaultCallTimeout = 10 * time.Second

// bounded is the context of a call that is expected to work.
func (s *suite) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), s.callTimeout())
}

// callTimeout returns how long a call may take.
func (s *suite) callTimeout() time.Duration {
	if s.CallTimeout == 0 {
		return defaultCallTimeout
	}
	return s.CallTimeout
}

// check fails the test unless err is one that a driver may return: nil, or an *Error that names its
// operation and has a code. It returns the code.
func (s *suite) check(op driver.Op, err error) driver.Code {
	s.t.Helper()
	if err == nil {
		return driver.OK
	}
	typed, ok := err.(*driver.Error) //nolint:errorlint // drivers return this very type
	switch {
	case !ok:
		s.t.Errorf("%s returned a %T; expected a *driver.Error: %v", op, err, err)
		return driver.CodeOf(err)
	case typed.Op != op:
		s.t.Errorf("%s returned an error that names operation %q: %v", op, typed.Op, err)
	case typed.Code == driver.OK || !slices.Contains(driver.Codes(), typed.Code):
		s.t.Errorf("%s returned an error with code %v: %v", op, typed.Code, err)
	case typed.Err == nil:
		s.t.Errorf("%s returned an error with nothing for people to read", op)
	}
	return typed.Code
}

// unchanged returns a function that fails the test when the call has changed its request.
func (s *suite) unchanged(target driver.Target) (check func()) {
	s.t.Helper()
	machine, class := target.Machine.DeepCopy(), target.Class.DeepCopy()
	return func() {
		s.t.Helper()
		if diff := cmp.Diff(machine, target.Machine) + cmp.Diff(class, target.Class); diff != "" {
			s.t.Errorf("the call has changed its request (-before +after):\n%s", diff)
		}
	}
}

// create calls CreateMachine.
func (s *suite) create(ctx context.Context, m *v1alpha1.Machine) (driver.VM, driver.Code) {
	s.t.Helper()
	defer s.unchanged(s.target(m))()
	resp, err := s.Driver.CreateMachine(ctx, driver.CreateMachineRequest{Target: s.target(m), UserData: s.UserData})
	return resp.VM, s.check(driver.OpCreate, err)
}

// mustCreate creates a machine's VM.
func (s *suite) mustCreate(m *v1alpha1.Machine) driver.VM {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	vm, code := s.create(ctx, m)
	if code != driver.OK {
		s.t.Fatalf("CreateMachine(%s): code %v, want OK", m.Name, code)
	}
	if vm.ProviderID == "" || vm.NodeName == "" {
		s.t.Fatalf("CreateMachine(%s): provider ID %q, node name %q; want both", m.Name, vm.ProviderID, vm.NodeName)
	}
	return vm
}

// status calls GetMachineStatus.
func (s *suite) status(ctx context.Context, m *v1alpha1.Machine) (driver.VM, driver.Code) {
	s.t.Helper()
	defer s.unchanged(s.target(m))()
	resp, err := s.Driver.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: s.target(m)})
	return resp.VM, s.check(driver.OpStatus, err)
}

// wantStatus fails the test unless GetMachineStatus answers with that code, and returns the VM.
func (s *suite) wantStatus(m *v1alpha1.Machine, want driver.Code, when string) driver.VM {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	vm, code := s.status(ctx, m)
	if code != want {
		s.t.Fatalf("GetMachineStatus %s: code %v, want %v", when, code, want)
	}
	return vm
}

// remove calls DeleteMachine.
func (s *suite) remove(ctx context.Context, m *v1alpha1.Machine) (gone bool, code driver.Code) {
	s.t.Helper()
	defer s.unchanged(s.target(m))()
	resp, err := s.Driver.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: s.target(m)})
	return resp.Gone, s.check(driver.OpDelete, err)
}

// mustRemove deletes a machine's VM and waits for its end, as the fleet does: by calling again.
func (s *suite) mustRemove(m *v1alpha1.Machine) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	for {
		gone, code := s.remove(ctx, m)
		if code != driver.OK {
			s.t.Fatalf("DeleteMachine(%s): code %v, want OK", m.Name, code)
		}
		if gone {
			return
		}
	}
}

// list calls ListMachines.
func (s *suite) list(ctx context.Context) (map[string]string, driver.Code) {
	s.t.Helper()
	class := s.Class.DeepCopy()
	resp, err := s.Driver.ListMachines(ctx, driver.ListMachinesRequest{Class: class, Secret: s.Secret})
	if diff := cmp.Diff(s.Class, class); diff != "" {
		s.t.Errorf("ListMachines has changed the class (-before +after):\n%s", diff)
	}
	return resp.Machines, s.check(driver.OpList, err)
}
