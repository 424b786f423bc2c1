package drivertest

import (
	"context"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// sweep calls DeleteResource once.
func (s *suite) sweep(ctx context.Context, r driver.Resource) (gone bool, code driver.Code) {
	s.t.Helper()
	resp, err := s.sweeper().DeleteResource(ctx, driver.DeleteResourceRequest{ScopeRequest: s.scopeRequest(), Resource: r})
	return resp.Gone, s.check(driver.OpSweep, err)
}

// mustSweep deletes a resource and waits for its end, as the fleet does: by calling again.
func (s *suite) mustSweep(r driver.Resource) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	for {
		gone, code := s.sweep(ctx, r)
		if code != driver.OK {
			s.t.Fatalf("DeleteResource(%s %s): code %v, want OK", r.Kind, r.ID, code)
		}
		if gone {
			return
		}
	}
}

func testSweepArguments(s *suite) {
	_ = s.sweeper()
	own := s.mustCreateNew()
	ctx, cancel := s.bounded()
	defer cancel()
	want := func(what string, code driver.Code) {
		s.t.Helper()
		if code != driver.InvalidArgument {
			s.t.Errorf("%s: code %v, want InvalidArgument", what, code)
		}
	}
	_, code := s.page(ctx, "a token that no page has returned")
	want("ListResources with an unknown token", code)
	for what, change := range map[string]func(*driver.Resource){
		"without the UID of its Machine": func(r *driver.Resource) { r.MachineUID = "" },
		"without an ID":                  func(r *driver.Resource) { r.ID = "" },
		"of an unknown kind":             func(r *driver.Resource) { r.Kind = "Bucket" },
	} {
		changed := own
		change(&changed)
		_, code = s.sweep(ctx, changed)
		want("DeleteResource of a VM "+what, code)
	}
	s.controlCluster = ""
	_, code = s.page(ctx, "")
	want("ListResources without the control cluster", code)
	_, code = s.sweep(ctx, own)
	want("DeleteResource without the control cluster", code)
	if !s.exists(own) {
		s.t.Error("the VM is gone after calls that were rejected")
	}
}

func testSweepVM(s *suite) {
	_ = s.sweeper()
	orphan, bystander := s.mustCreateNew(), s.mustCreateNew()
	s.mustSweep(orphan)
	if s.exists(orphan) || !s.exists(bystander) {
		s.t.Fatalf("after the deletion of a VM it exists: %t, another one exists: %t; want false and true", s.exists(orphan), s.exists(bystander))
	}
	s.wantResources("after the deletion of a VM", bystander)
	s.mustSweep(orphan)
	if !s.exists(bystander) {
		s.t.Error("another VM is gone after the deletion was repeated")
	}
}

func testSweepSurplus(s *suite) {
	_ = s.sweeper()
	if s.DoubleVM == nil {
		s.t.Skip("Env.DoubleVM is not set")
	}
	m := s.machine()
	own := vmOf(m, s.mustCreate(m))
	s.DoubleVM(s.t, m)
	all, _ := s.resources()
	surplus := slices.IndexFunc(all, func(r driver.Resource) bool { return r.ID != own.ID && r.MachineUID == m.UID })
	if len(all) != 2 || surplus < 0 {
		s.t.Fatalf("ListResources with two VMs of a machine returned %+v, want both", all)
	}
	s.mustSweep(all[surplus])
	s.wantResources("after the deletion of the second VM of a machine", own)
	ctx, cancel := s.bounded()
	defer cancel()
	if vm, code := s.status(ctx, m); code == driver.OutOfRange || vm.ProviderID != own.ID {
		s.t.Errorf("GetMachineStatus after the deletion of the second VM: VM %q, code %v; want the first one", vm.ProviderID, code)
	}
}

func testSweepOtherTags(s *suite) {
	_ = s.sweeper()
	victim, other := s.mustCreateNew(), s.mustCreateNew()
	wrongUID := victim
	wrongUID.MachineUID = other.MachineUID
	s.mustSweep(wrongUID)
	if !s.exists(victim) || !s.exists(other) {
		s.t.Errorf("a VM is gone after a deletion of its ID with the UID of another machine: %v", s.VMs(s.t))
	}
	s.in(s.Class.Namespace, s.Class.Name, "another-cluster", func() { s.mustSweep(victim) })
	if !s.exists(victim) {
		s.t.Error("a VM is gone after a deletion with another control cluster")
	}
	s.mustSweep(victim)
	if s.exists(victim) {
		s.t.Error("a VM exists after its deletion")
	}
}

func testSweepLeftover(s *suite) {
	_ = s.sweeper()
	m, bystander := s.machine(), s.machine()
	s.failPartly(m, bystander)
	before := s.leftoversOf(bystander)
	all, _ := s.resources()
	own := slices.DeleteFunc(all, func(r driver.Resource) bool { return r.MachineUID != m.UID })
	if len(own) == 0 && s.leftoversOf(m) == 0 {
		s.t.Skip("the driver leaves nothing of a create that fails part-way")
	}
	for _, r := range own {
		wrongUID := r
		wrongUID.MachineUID = bystander.UID
		s.mustSweep(wrongUID)
		s.in(s.Class.Namespace, s.Class.Name, "another-cluster", func() { s.mustSweep(r) })
	}
	if got := s.leftoversOf(m); got != len(own) {
		s.t.Errorf("%d left-overs after deletions with another UID and another control cluster, want %d", got, len(own))
	}
	for at, r := range own {
		s.mustSweep(r)
		s.mustSweep(r)
		if got, want := s.leftoversOf(m), len(own)-at-1; got != want {
			s.t.Errorf("%d left-overs after the deletion of %s %s, want %d", got, r.Kind, r.ID, want)
		}
	}
	if after := s.leftoversOf(bystander); after != before {
		s.t.Errorf("the deletions have changed left-overs of another machine: %d, before %d", after, before)
	}
}

// shown returns a VM and, where the Env can create them, left-overs, and the tokens of all pages
// that list them.
func (s *suite) shown() (all []driver.Resource, tokens []string) {
	s.t.Helper()
	s.mustCreateNew()
	if s.Leftovers != nil {
		if heal := s.Fail(s.t, PartialCreate); heal != nil {
			ctx, cancel := s.bounded()
			defer cancel()
			s.create(ctx, s.machine())
			heal()
		}
	}
	return s.resources()
}

func testSweepUnknown(s *suite) {
	_ = s.sweeper()
	if s.Fail == nil {
		s.t.Skip("Env.Fail is not set")
	}
	all, tokens := s.shown()
	for how, isExpected := range map[Failure]func(driver.Code) bool{
		Unreachable: outcomeUnknown, NoAnswer: outcomeUnknown, ServerError: outcomeUnknown, Nonsense: outcomeUnknown, Throttled: outcomeUnknown,
		BadCredentials: func(code driver.Code) bool { return code == driver.Unauthenticated },
		Forbidden:      func(code driver.Code) bool { return code == driver.PermissionDenied },
	} {
		s.each([]Failure{how}, func(s *suite, how Failure) {
			for _, token := range tokens {
				ctx, cancel := context.WithTimeout(s.t.Context(), lostAfter)
				if _, code := s.page(ctx, token); !isExpected(code) {
					s.t.Errorf("%s: ListResources from %q: unexpected code %v", how, token, code)
				}
				cancel()
			}
			for _, r := range all {
				ctx, cancel := context.WithTimeout(s.t.Context(), lostAfter)
				if gone, code := s.sweep(ctx, r); gone || !isExpected(code) {
					s.t.Errorf("%s: DeleteResource of a %s that is there: gone=%t, unexpected code %v", how, r.Kind, gone, code)
				}
				cancel()
			}
		})
	}
	s.wantResources("after calls that the cloud did not carry out", all...)
}

func testSweepLies(s *suite) {
	_ = s.sweeper()
	if s.Fail == nil {
		s.t.Skip("Env.Fail is not set")
	}
	all, tokens := s.shown()
	d, _ := driver.SweeperOf(driver.Checked(s.Driver)) // as in the fleet
	s.each(lies, func(s *suite, how Failure) {
		if how == OtherVM {
			return // lists have VMs of any name, and a delete by ID does not depend on it
		}
		ctx, cancel := s.bounded()
		defer cancel()
		for _, token := range tokens {
			resp, err := d.ListResources(ctx, driver.ListResourcesRequest{ScopeRequest: s.scopeRequest(), Continue: token})
			s.wantRejected(how, driver.OpResources, len(resp.Items) > 0 || resp.Continue != "", err)
		}
		for _, r := range all {
			resp, err := d.DeleteResource(ctx, driver.DeleteResourceRequest{ScopeRequest: s.scopeRequest(), Resource: r})
			s.wantRejected(how, driver.OpSweep, resp.Gone, err)
		}
	})
	s.wantResources("after calls that the cloud did not carry out", all...)
}

// wantRejected fails the test unless a false answer is an error that leaves open what is there,
// with a short message and no result.
func (s *suite) wantRejected(how Failure, op driver.Op, result bool, err error) {
	s.t.Helper()
	if code := s.check(op, err); !outcomeUnknown(code) || result {
		s.t.Errorf("%s: %s: code %v, with a result: %t; want a code for an unknown state, and none", how, op, code, result)
	}
	if err != nil && len(driver.MessageOf(err)) > driver.MaxMessage {
		s.t.Errorf("%s: %s: the message has %d bytes", how, op, len(driver.MessageOf(err)))
	}
}

func testSweepContexts(s *suite) {
	_ = s.sweeper()
	own := s.mustCreateNew()
	defer s.fail(NoAnswer)()
	for name, call := range map[driver.Op]func(ctx context.Context) driver.Code{
		driver.OpResources: func(ctx context.Context) driver.Code { _, code := s.page(ctx, ""); return code },
		driver.OpSweep:     func(ctx context.Context) driver.Code { _, code := s.sweep(ctx, own); return code },
	} {
		s.endsWithContext(name, call)
	}
}
