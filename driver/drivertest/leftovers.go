package drivertest

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// leftoversOf counts what belongs to no VM and was created for the machine.
func (s *suite) leftoversOf(m *v1alpha1.Machine) int {
	s.t.Helper()
	count := 0
	for _, uid := range s.Leftovers(s.t) {
		if uid == m.UID {
			count++
		}
	}
	return count
}

// failPartly has the creates of some machines fail part-way. A driver may remove their left-overs
// at once.
func (s *suite) failPartly(machines ...*v1alpha1.Machine) {
	s.t.Helper()
	if s.Leftovers == nil {
		s.t.Skip("Env.Leftovers is not set")
	}
	heal := s.fail(PartialCreate)
	for _, m := range machines {
		ctx, cancel := s.bounded()
		if _, code := s.create(ctx, m); code == driver.OK {
			s.t.Fatalf("CreateMachine(%s) succeeded in a cloud that fails part-way", m.Name)
		}
		cancel()
	}
	heal()
}

// A driver that finds no VM still has to look for what belongs to one.
func testDeleteLeftovers(s *suite) {
	m, bystander := s.machine(), s.machine()
	s.failPartly(m, bystander)
	s.wantStatus(m, driver.NotFound, "after a create that failed part-way")
	before := s.leftoversOf(bystander)
	s.mustRemove(m)
	if remaining := s.leftoversOf(m); remaining > 0 {
		s.t.Errorf("after the delete of a machine without a VM %d left-overs of its create exist, want none", remaining)
	}
	if after := s.leftoversOf(bystander); after != before {
		s.t.Errorf("the delete of another machine has changed left-overs: %d, before %d", after, before)
	}
	s.mustRemove(bystander)
	if remaining := s.Leftovers(s.t); len(remaining) > 0 {
		s.t.Errorf("left-overs of %v after all machines were deleted; want none", remaining)
	}
}

// A create that is repeated uses the left-overs of the first one, or removes them.
func testCreateAfterPart(s *suite) {
	m := s.machine()
	s.failPartly(m, m)
	vm := s.mustCreate(m)
	s.wantVMs(m, 1, "after a create that was repeated")
	s.mustRemove(created(m, vm))
	s.wantVMs(m, 0, "after the delete")
	s.mustRemove(m)
	if remaining := s.leftoversOf(m); remaining > 0 {
		s.t.Errorf("after the delete of the VM %d left-overs of its creates exist, want none", remaining)
	}
}
