package drivertest

import (
	"context"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// outcomeUnknown reports whether a code leaves open what the cloud has done.
func outcomeUnknown(code driver.Code) bool {
	switch code {
	case driver.Unknown, driver.DeadlineExceeded, driver.Aborted, driver.Unavailable, driver.Internal, driver.Canceled:
		return true
	case driver.OK, driver.InvalidArgument, driver.NotFound, driver.AlreadyExists, driver.PermissionDenied,
		driver.ResourceExhausted, driver.FailedPrecondition, driver.OutOfRange, driver.Unimplemented, driver.DataLoss,
		driver.Unauthenticated, driver.Uninitialized:
	}
	return false
}

// each tries failures of the cloud, one after the other, and skips those that the Env does not
// support.
func (s *suite) each(failures []Failure, try func(s *suite, how Failure)) {
	for _, how := range failures {
		heal := func() {}
		if s.Fail != nil {
			heal = s.Fail(s.t, how)
		}
		if s.Fail == nil || heal == nil {
			s.t.Logf("skipped: Env.Fail does not support %s", how)
			continue
		}
		try(s, how)
		heal()
	}
}

func testUnknownIsNotAbsent(s *suite) {
	if s.Fail == nil {
		s.t.Skip("Env.Fail is not set")
	}
	m := s.machine()
	there := created(m, s.mustCreate(m))
	s.each([]Failure{Unreachable, NoAnswer, ServerError, Nonsense, Throttled}, func(s *suite, how Failure) {
		for _, m := range []*v1alpha1.Machine{m, there} {
			ctx, cancel := context.WithTimeout(s.t.Context(), lostAfter)
			if _, code := s.status(ctx, m); !outcomeUnknown(code) {
				s.t.Errorf("%s: GetMachineStatus of a VM that is there: code %v, want one for an unknown state", how, code)
			}
			cancel()
			ctx, cancel = context.WithTimeout(s.t.Context(), lostAfter)
			if gone, code := s.remove(ctx, m); gone || !outcomeUnknown(code) {
				s.t.Errorf("%s: DeleteMachine: gone=%t, code %v; want one for an unknown state", how, gone, code)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), lostAfter)
		defer cancel()
		if machines, code := s.list(ctx); len(machines) > 0 || !outcomeUnknown(code) {
			s.t.Errorf("%s: ListMachines: %d VMs, code %v; want none, and a code for an unknown state", how, len(machines), code)
		}
	})
	s.wantVMs(there, 1, "after calls that the cloud did not carry out")
}

// A false answer neither hides a VM nor invents one, and the message about it is short.
func testLies(s *suite) {
	if s.Fail == nil {
		s.t.Skip("Env.Fail is not set")
	}
	there := s.machine()
	there = created(there, s.mustCreate(there))
	d := driver.Checked(s.Driver) // as in the fleet
	s.each(lies, func(s *suite, how Failure) {
		call := func(op driver.Op, do func(ctx context.Context) (providerID string, err error)) {
			ctx, cancel := s.bounded()
			defer cancel()
			providerID, err := do(ctx)
			if code := s.check(op, err); !outcomeUnknown(code) || providerID != "" {
				s.t.Errorf("%s: %s: code %v with %q; want one for an unknown state, and no VM", how, op, code, providerID)
			}
			if err != nil && len(driver.MessageOf(err)) > driver.MaxMessage {
				s.t.Errorf("%s: %s: the message has %d bytes", how, op, len(driver.MessageOf(err)))
			}
		}
		for _, m := range []*v1alpha1.Machine{s.machine(), there} {
			call(driver.OpStatus, func(ctx context.Context) (string, error) {
				resp, err := d.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: s.target(m)})
				return resp.ProviderID, err
			})
		}
		call(driver.OpCreate, func(ctx context.Context) (string, error) {
			resp, err := d.CreateMachine(ctx, driver.CreateMachineRequest{Target: s.target(s.machine()), UserData: s.UserData})
			return resp.ProviderID, err
		})
		if how == OtherVM {
			return // lists have VMs of any name, and a delete by ID does not depend on it
		}
		call(driver.OpDelete, func(ctx context.Context) (string, error) {
			resp, err := d.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: s.target(there)})
			if resp.Gone {
				return "gone", err
			}
			return "", err
		})
		call(driver.OpList, func(ctx context.Context) (string, error) {
			resp, err := d.ListMachines(ctx, driver.ListMachinesRequest{Class: s.Class, Secret: s.Secret})
			if len(resp.Machines) > 0 {
				return "VMs", err
			}
			return "", err
		})
	})
}

func testCodes(s *suite) {
	if s.Fail == nil {
		s.t.Skip("Env.Fail is not set")
	}
	for how, want := range map[Failure][]driver.Code{
		QuotaExceeded:  {driver.ResourceExhausted},
		NoCapacity:     {driver.ResourceExhausted},
		BadCredentials: {driver.Unauthenticated},
		Forbidden:      {driver.PermissionDenied},
		ServerError:    {driver.Internal, driver.Unavailable},
		Throttled:      {driver.Unavailable, driver.Aborted},
	} {
		s.each([]Failure{how}, func(s *suite, how Failure) {
			m := s.machine()
			ctx, cancel := s.bounded()
			defer cancel()
			_, err := s.Driver.CreateMachine(ctx, driver.CreateMachineRequest{Target: s.target(m), UserData: s.UserData})
			if code := s.check(driver.OpCreate, err); !slices.Contains(want, code) {
				s.t.Errorf("%s: CreateMachine: code %v, want one of %v", how, code, want)
			}
			if is := driver.IsThrottled(err); is != (how == Throttled) {
				s.t.Errorf("%s: Throttled %t, want that of throttling only", how, is)
			}
			if after := driver.RetryAfterOf(err); how == Throttled && after != ThrottledFor {
				s.t.Errorf("%s: RetryAfter %v, want %v", how, after, ThrottledFor)
			}
			s.wantVMs(m, 0, string(how))
		})
	}
}

func testContexts(s *suite) {
	m := s.machine()
	there := created(m, s.mustCreate(m))
	defer s.fail(NoAnswer)()
	for name, call := range map[driver.Op]func(ctx context.Context) driver.Code{
		driver.OpCreate: func(ctx context.Context) driver.Code { _, code := s.create(ctx, s.machine()); return code },
		driver.OpStatus: func(ctx context.Context) driver.Code { _, code := s.status(ctx, there); return code },
		driver.OpDelete: func(ctx context.Context) driver.Code { _, code := s.remove(ctx, there); return code },
		driver.OpList:   func(ctx context.Context) driver.Code { _, code := s.list(ctx); return code },
	} {
		s.endsWithContext(name, call)
	}
}

// endsWithContext fails the test unless a call to a cloud that does not answer ends with its
// context.
func (s *suite) endsWithContext(name driver.Op, call func(ctx context.Context) driver.Code) {
	s.t.Helper()
	before, cancel := context.WithCancel(s.t.Context())
	cancel()
	s.returns(string(name)+" with a context that has ended", driver.Canceled, before, call)

	deadline, cancelDeadline := context.WithTimeout(s.t.Context(), lostAfter)
	s.returns(string(name)+" with a deadline", driver.DeadlineExceeded, deadline, call)
	cancelDeadline()

	during, cancel := context.WithCancel(s.t.Context())
	later, cancelLater := context.WithTimeout(s.t.Context(), lostAfter)
	stop := context.AfterFunc(later, cancel)
	s.returns(string(name)+" with a context that is cancelled", driver.Canceled, during, call)
	stop()
	cancelLater()
	cancel()
}

// returns fails the test unless the call returns soon after its context has ended, with that code.
//
//nolint:revive // the context is what is tested
func (s *suite) returns(what string, want driver.Code, ctx context.Context, call func(ctx context.Context) driver.Code) {
	s.t.Helper()
	codes := make(chan driver.Code, 1)
	go func() { codes <- call(ctx) }()
	bounded, cancel := s.bounded()
	defer cancel()
	select {
	case code := <-codes:
		if code != want {
			s.t.Errorf("%s: code %v, want %v", what, code, want)
		}
	case <-bounded.Done():
		s.t.Fatalf("%s did not return", what)
	}
}
