package orphans

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// noAnnotations are Namespaces without any.
type noAnnotations struct{}

// Known reports that they are known.
func (noAnnotations) Known() bool { return true }

// Annotation returns none.
func (noAnnotations) Annotation(string, string) (string, bool) { return "", false }

// withBudget returns a leader with a limit for orphans and a deletion budget.
func withBudget(t *testing.T, limit, budget int) *sweeping {
	t.Helper()
	s := newSweeping(t, limit)
	s.config.Budget = &deletion.Budget{
		Namespaces: noAnnotations{}, Leases: apiserver.ClientsThrough(s).Core.CoordinationV1(), Default: budget, Clock: s.clock,
	}
	s.lead()
	return s
}

// replace reserves replacements of machines.
func (s *sweeping) replace(keys ...string) deletion.Grant {
	s.Helper()
	grant, err := s.config.Budget.Reserve(s.Context(), namespace, keys)
	if err != nil {
		s.Fatal(err)
	}
	return grant
}

// Controller beyond the budget wait for it, under any leader; replacements of machines count too.
func TestOrphansBeyondTheDeletionBudgetWaitForIt(t *testing.T) {
	s := withBudget(t, 10, 3)
	s.add(driver.ResourceVM, namespace, "1", "2", "3")
	s.replace("machine@1")
	s.sweepTwice()
	if n := len(s.cloud.Deleted()); n != 2 {
		t.Fatalf("deleted %q, want two", s.cloud.Deleted())
	}
	if text := s.lastHeld(); !strings.Contains(text,
		"Held 1 orphans: the deletion budget of the Namespace is exhausted: within an hour at most 3 ") {
		t.Errorf("Event OrphansHeld: %q", text)
	}
	if grant := s.replace("machine@2"); len(grant.Reserved) > 0 {
		t.Error("a machine is replaced beyond the budget")
	}
	s.lead()
	s.sweep(namespace)
	if n := len(s.cloud.Deleted()); n != 2 {
		t.Errorf("deleted %q under another leader, want two", s.cloud.Deleted())
	}
	s.clock.Step(time.Hour)
	s.sweep(namespace)
	s.wantDeleted("1", "2", "3")
	s.wantReports("1", "2", "3")
}

// A user who approves has looked at what is deleted.
func TestSweepApprovalGoesBeforeTheDeletionBudget(t *testing.T) {
	s := withBudget(t, 10, 1)
	s.replace("machine@1")
	s.add(driver.ResourceVM, namespace, "1", "2")
	s.sweepTwice()
	s.wantDeleted()
	s.approve(s.digest("1", "2"))
	s.sweep(namespace)
	s.wantDeleted("1", "2")
}

// What the limit for orphans holds uses up no budget of machines.
func TestSweepHeldOrphansLeaveTheDeletionBudget(t *testing.T) {
	s := withBudget(t, 1, 2)
	s.add(driver.ResourceVM, namespace, "1", "2")
	s.sweepTwice()
	s.wantDeleted()
	if grant := s.replace("machine@1", "machine@2"); len(grant.Reserved) != 2 {
		t.Errorf("reserved %v, want both", grant.Reserved)
	}
}

func TestSweepUnknownDeletionBudgetDeletesNothing(t *testing.T) {
	s := withBudget(t, 10, 5)
	s.add(driver.ResourceVM, namespace, "1")
	s.sweep(namespace)
	s.Fault(func(r apiserver.Request) error {
		if r.Resource == "leases" && r.Name == v1alpha1.LeaseDeletions {
			return errors.New("no answer")
		}
		return nil
	})
	s.clock.Step(timeBetween)
	if _, err := s.orphans.reconcile(t.Context(), namespace); err == nil {
		t.Error("no error")
	}
	s.wantDeleted()
	if text := s.lastHeld(); !strings.Contains(text, "the deletion could not be reserved") {
		t.Errorf("Event OrphansHeld: %q", text)
	}
	s.Fault(nil)
	s.sweep(namespace)
	s.wantDeleted("1")
}
