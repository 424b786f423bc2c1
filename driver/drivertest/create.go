package drivertest

import (
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// concurrency is how many calls are sent at the same time.
const concurrency = 8

// lostAfter is how long a caller waits for an answer that does not arrive.
const lostAfter = 300 * time.Millisecond

// lookEvery is how often a test looks at the cloud while a call is under way.
const lookEvery = 10 * time.Millisecond

func testCreate(s *suite) {
	m := s.machine()
	s.wantStatus(m, driver.NotFound, "before the create")
	vm := s.mustCreate(m)
	s.wantVMs(m, 1, "after the create")
	if got := s.wantStatus(m, driver.OK, "by UID"); got.ProviderID != vm.ProviderID || got.NodeName != vm.NodeName {
		s.t.Errorf("GetMachineStatus by UID returned another VM than CreateMachine:\n%s", cmp.Diff(vm, got))
	}
	if got := s.wantStatus(created(m, vm), driver.OK, "by provider ID"); got.ProviderID != vm.ProviderID || got.NodeName != vm.NodeName {
		s.t.Errorf("GetMachineStatus by provider ID returned another VM than CreateMachine:\n%s", cmp.Diff(vm, got))
	}
}

func testCreateTwice(s *suite) {
	m := s.machine()
	first, second := s.mustCreate(m), s.mustCreate(m)
	if first.ProviderID != second.ProviderID {
		s.t.Errorf("the second create returned %s, the first %s", second.ProviderID, first.ProviderID)
	}
	s.wantVMs(m, 1, "after two creates")
}

func testCreateConcurrently(s *suite) {
	m := s.machine()
	ids := make([]string, concurrency)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			ctx, cancel := s.bounded()
			defer cancel()
			// A create that runs at the same time as another one may fail. The fleet would call again; there
			// has to be one VM.
			if vm, code := s.create(ctx, m); code == driver.OK {
				ids[i] = vm.ProviderID
			}
		})
	}
	wg.Wait()
	want := s.mustCreate(m).ProviderID
	for _, id := range ids {
		if id != "" && id != want {
			s.t.Errorf("concurrent creates returned %s and %s", id, want)
		}
	}
	s.wantVMs(m, 1, "after concurrent creates")
}

func testCreateAfterLostAnswer(s *suite) {
	m := s.machine()
	heal := s.fail(LostAnswer)
	if code := s.createUntilExists(m); !outcomeUnknown(code) {
		s.t.Errorf("CreateMachine without an answer: code %v, want one for an unknown outcome", code)
	}
	heal()
	s.wantVMs(m, 1, "after the answer was lost")
	s.mustCreate(m)
	s.wantVMs(m, 1, "after the create was repeated")
}

// createUntilExists calls CreateMachine, and cancels it when the VM has existed for lostAfter, or
// after the time that a call may take. How long a driver takes to the request that creates the VM
// depends on the machine that the test runs on.
func (s *suite) createUntilExists(m *v1alpha1.Machine) driver.Code {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	code := make(chan driver.Code, 1)
	go func() {
		_, got := s.create(ctx, m)
		code <- got
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case got := <-code:
			return got
		case <-look.C:
			if s.vmsOf(m) == 0 {
				continue
			}
			timer := time.AfterFunc(lostAfter, cancel)
			defer timer.Stop()
			return <-code
		}
	}
}

// Bootstrap tokens expire and are replaced, and classes are changed, while a create is retried.
func testCreateWithOtherUserData(s *suite) {
	m := s.machine()
	first := s.mustCreate(m)
	s.UserData = append([]byte("# changed\n"), s.UserData...)
	if second := s.mustCreate(m); second.ProviderID != first.ProviderID {
		s.t.Errorf("with other user data the create returned %s, before %s", second.ProviderID, first.ProviderID)
	}
	s.wantVMs(m, 1, "after a create with other user data")
}

func testCreateAfterEnd(s *suite) {
	if s.EndVM == nil {
		s.t.Skip("Env.EndVM is not set")
	}
	m := s.machine()
	first := s.mustCreate(m)
	s.EndVM(s.t, first.ProviderID)
	ctx, cancel := s.bounded()
	defer cancel()
	// Whether a Machine may have a second VM is the driver's choice.
	vm, code := s.create(ctx, m)
	if code == driver.OK && vm.ProviderID == first.ProviderID {
		s.t.Errorf("CreateMachine returned %s, which has ended", vm.ProviderID)
	}
	want := 0
	if code == driver.OK {
		want = 1
	}
	s.wantVMs(m, want, "after a create that followed the end of the VM")
}

func testBadSpecs(s *suite) {
	if len(s.BadSpecs) == 0 {
		s.t.Skip("Env.BadSpecs is not set")
	}
	for name, spec := range s.BadSpecs {
		m := s.machine()
		ctx, cancel := s.bounded()
		_, err := s.Driver.CreateMachine(ctx, driver.CreateMachineRequest{Target: s.withSpec(m, spec), UserData: s.UserData})
		cancel()
		if code := s.check(driver.OpCreate, err); code != driver.InvalidArgument {
			s.t.Errorf("%s: CreateMachine: code %v, want InvalidArgument", name, code)
		}
		s.wantVMs(m, 0, name)
	}
}

func testInitialize(s *suite) {
	m := s.machine()
	vm := s.mustCreate(m)
	for _, m := range []driver.Target{s.target(m), s.target(created(m, vm)), s.target(created(m, vm))} {
		ctx, cancel := s.bounded()
		resp, err := s.Driver.InitializeMachine(ctx, driver.InitializeMachineRequest{Target: m})
		cancel()
		switch s.check(driver.OpInitialize, err) {
		case driver.OK:
			if resp.ProviderID != vm.ProviderID {
				s.t.Errorf("InitializeMachine returned %s, want %s", resp.ProviderID, vm.ProviderID)
			}
		case driver.Unimplemented:
		default:
			s.t.Errorf("InitializeMachine: %v", err)
		}
	}
	s.wantStatus(created(m, vm), driver.OK, "after InitializeMachine")
}
