package drivertest

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func testDeleteNothing(s *suite) {
	never := s.machine()
	s.mustRemove(never)
	m := s.machine()
	vm := s.mustCreate(m)
	s.mustRemove(created(m, vm))
	s.wantVMs(m, 0, "after the delete")
	s.mustRemove(created(m, vm))
	s.mustRemove(m)
}

func testDeleteByProviderID(s *suite) {
	one, other := s.machine(), s.machine()
	vmOfOne, vmOfOther := s.mustCreate(one), s.mustCreate(other)
	s.mustRemove(created(one, vmOfOne))
	s.wantVMs(one, 0, "after the delete by provider ID")
	s.wantVMs(other, 1, "after the delete of another VM")
	s.mustRemove(created(other, vmOfOther))
	s.wantVMs(other, 0, "after its delete")
}

// A client that may write a Machine can write the provider ID of any VM into it.
func testForeignProviderID(s *suite) {
	if s.WithoutTags {
		s.t.Skip("Env.WithoutTags is set")
	}
	victim, forger := s.machine(), s.machine()
	victim.Namespace = "of-" + s.Class.Namespace
	forger.Name = victim.Name
	vm := s.mustCreate(victim)
	for _, adopt := range []bool{false, true} {
		s.adopt = adopt
		s.wantForeign(created(forger, vm), "by a machine without a VM")
		s.wantStatus(created(forger, vm), driver.NotFound, "by the provider ID of another machine's VM")
		s.wantVMs(victim, 1, "after the delete of another machine with its provider ID")

		own := s.mustCreate(forger)
		if got := s.wantStatus(created(forger, vm), driver.OK,
			"of a machine with a VM, by the provider ID of another"); got.ProviderID != own.ProviderID {
			s.t.Errorf("GetMachineStatus returned %s, which is another machine's; want %s", got.ProviderID, own.ProviderID)
		}
		s.wantForeign(created(forger, vm), "by a machine with a VM")
		s.wantVMs(forger, 0, "after the delete with another machine's provider ID")
		s.wantVMs(victim, 1, "after the delete of another machine with its provider ID")
		forger = s.machine() // a Machine gets one VM in its life
	}
	s.adopt = false
	s.mustRemove(created(victim, vm))
	s.wantVMs(victim, 0, "after its own delete")
}

func testForeignInitialize(s *suite) {
	if s.WithoutTags {
		s.t.Skip("Env.WithoutTags is set")
	}
	victim, forger := s.machine(), s.machine()
	target := s.target(created(forger, s.mustCreate(victim)))
	ctx, cancel := s.bounded()
	defer cancel()
	_, err := s.Driver.InitializeMachine(ctx, driver.InitializeMachineRequest{Target: target})
	if code := s.check(driver.OpInitialize, err); code != driver.NotFound && code != driver.Unimplemented {
		s.t.Errorf("InitializeMachine with the provider ID of another machine's VM: code %v, want NotFound", code)
	}
}

// Machine Controller Manager has created VMs without a UID.
func testAdopt(s *suite) {
	if s.CreateBare == nil {
		s.t.Skip("Env.CreateBare is not set")
	}
	m, namesake := s.machine(), s.machine()
	namesake.Name, namesake.Namespace = m.Name, "of-"+m.Namespace
	unrelated := s.machine()
	bare := driver.VM{ProviderID: s.CreateBare(s.t, m)}
	there := func(when string) {
		s.t.Helper()
		if !slices.ContainsFunc(s.VMs(s.t), func(vm VM) bool { return vm.ProviderID == bare.ProviderID }) {
			s.t.Fatalf("%s: the VM is gone", when)
		}
	}
	s.wantStatus(created(m, bare), driver.NotFound, "of a VM without UID")
	s.wantForeign(created(m, bare), "of a VM without UID")
	there("after a delete that does not adopt")
	s.adopt = true
	for _, other := range []*v1alpha1.Machine{namesake, unrelated} {
		s.wantStatus(created(other, bare), driver.NotFound, "of a VM without UID and of another name or namespace")
		s.wantForeign(created(other, bare), "of a VM without UID and of another name or namespace")
		there("after the delete of " + other.Namespace + "/" + other.Name)
	}
	if got := s.wantStatus(created(m, bare), driver.OK, "that adopts"); got.ProviderID != bare.ProviderID {
		s.t.Errorf("GetMachineStatus returned %s, want %s", got.ProviderID, bare.ProviderID)
	}
	s.mustRemove(created(m, bare))
	if len(s.VMs(s.t)) > 0 {
		s.t.Errorf("VMs after the delete that adopts: %v", s.VMs(s.t))
	}
}

// wantForeign deletes a machine's VM, and fails the test unless the driver reports that it did not
// change the VM of its provider ID.
func (s *suite) wantForeign(m *v1alpha1.Machine, when string) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	for {
		resp, err := s.Driver.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: s.target(m)})
		if code := s.check(driver.OpDelete, err); code != driver.OK || !resp.Left || resp.Owned {
			s.t.Fatalf("DeleteMachine %s: code %v, left=%t, owned=%t; want OK, true and false", when, code, resp.Left, resp.Owned)
		}
		if resp.Gone {
			return
		}
	}
}

func testDeleteByUID(s *suite) {
	m, bystander := s.machine(), s.machine()
	s.mustCreate(m)
	s.mustCreate(bystander)
	s.mustRemove(m)
	s.wantVMs(m, 0, "after the delete by UID")
	s.wantVMs(bystander, 1, "after the delete of another machine")
}

func testDeleteWithoutUID(s *suite) {
	if s.WithoutTags {
		s.t.Skip("Env.WithoutTags is set")
	}
	m := s.machine()
	vm := s.mustCreate(m)
	withoutUID := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace}}
	ctx, cancel := s.bounded()
	defer cancel()
	if gone, code := s.remove(ctx, created(withoutUID, vm)); gone || code != driver.InvalidArgument {
		s.t.Errorf("DeleteMachine of a Machine without UID: gone=%t, code %v; want InvalidArgument", gone, code)
	}
	s.wantVMs(m, 1, "after the delete without UID")
}

func testDeleteConcurrently(s *suite) {
	m := s.machine()
	vm := s.mustCreate(m)
	var wg sync.WaitGroup
	for range concurrency {
		wg.Go(func() {
			ctx, cancel := s.bounded()
			defer cancel()
			_, _ = s.remove(ctx, created(m, vm)) // May fail when calls are concurrent; the fleet would call again.
		})
	}
	wg.Wait()
	s.mustRemove(created(m, vm))
	s.wantVMs(m, 0, "after concurrent deletes")
}
