package orphans

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// An Event names five orphans, and each reason once. Nothing is reported as held when nothing is.
func TestHeldEventNamesSomeOrphansAndEachReasonOnce(t *testing.T) {
	for count, wantOthers := range map[int]bool{0: false, mostNamed: false, mostNamed + 1: true} {
		s := newSweeping(t, 0)
		for i := range count {
			s.add(driver.ResourceDisk, namespace, fmt.Sprint("disk-", i))
		}
		s.sweepTwice()
		text := s.lastHeld()
		if (text != "") != (count > 0) {
			t.Errorf("%d orphans: Event %q", count, text)
		}
		if n := strings.Count(text, "Disk disk-"); n != min(count, mostNamed) || strings.Contains(text, "and others") != wantOthers ||
			strings.Count(text, "the limit is 0") != min(count, 1) {
			t.Errorf("%d orphans: the Event names %d: %q", count, n, text)
		}
	}
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweepTwice()
	s.wantDeleted("vm")
	if text := s.lastHeld(); text != "" {
		t.Errorf("Event %q, and nothing was held", text)
	}
}

// An approval of no orphans approves nothing, and stays for the person who wrote it to see.
func TestApprovalOfNoOrphansHasNoEffect(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	s.approve(s.digest())
	s.sweep(namespace)
	if !s.isApproved() {
		t.Error("the approval was removed")
	}
}

// An approval while deletions are stopped is not used up: it would have an effect later, without a
// person who knows of that. What is not confirmed is not held.
func TestApprovalWhileDeletionsAreHeldIsNotUsedUp(t *testing.T) {
	s := newSweeping(t, 0)
	s.add(driver.ResourceVM, namespace, "1", "2")
	s.sweep(namespace)
	s.putMachine("adopted", "2")
	s.held = true
	s.approve(s.digest("1"))
	s.sweep(namespace)
	if text := s.lastHeld(); !strings.HasPrefix(text, "Held 1 orphans") {
		t.Errorf("Event %q, want that one orphan is held", text)
	}
	if !s.isApproved() {
		t.Error("the approval was removed")
	}
	record := decide.ParseRecord(s.Get("machineclasses", namespace, class).GetAnnotations()[v1alpha1.AnnotationOrphans],
		decide.ScopeKey(providerOfClass, "account"))
	if record.Suspects[s.suspects["1"].Key()].Approved {
		t.Error("the approval was recorded")
	}
	s.wantDeleted()
}

// The receipt of a deletion that was refused at first names its approval, too.
func TestReceiptOfADeletionThatWasRefusedAtFirstNamesItsApproval(t *testing.T) {
	s := newSweeping(t, 0)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweepTwice()
	s.approve(s.digest("vm"))
	s.refuses()
	s.fails("injected by the test")
	s.cloud.Work()
	s.sweep(namespace)
	s.wantReports("vm")
	for _, r := range s.receipts() {
		if !strings.HasSuffix(r.Evidence, "; approved") {
			t.Errorf("evidence %q does not name the approval", r.Evidence)
		}
	}
}

// Whether the namespace is still served costs a read only where something is deleted.
func TestSweepWithoutOrphansReadsOnceWhetherTheNamespaceIsServed(t *testing.T) {
	s, asked := newSweeping(t, 10), 0
	s.served = func() bool {
		asked++
		return true
	}
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
}

// ledgerText returns the reservations on the Lease.
func (s *sweeping) ledgerText() string {
	lease := s.Get("leases", "fleet", "fleet-safety")
	if lease == nil {
		return ""
	}
	return lease.GetAnnotations()[v1alpha1.AnnotationOrphanDeletions]
}

// wantHeld checks that the last Event holds so many orphans for the limit.
func (s *sweeping) wantHeld(count int) {
	s.Helper()
	if text := s.lastHeld(); !strings.HasPrefix(text, fmt.Sprintf("Held %d orphans", count)) || !strings.Contains(text, "the limit is") {
		s.Errorf("Event %q, want %d orphans that are held for the limit", text, count)
	}
	s.events = nil
}

// An orphan whose deletion was reserved, and refused, is deleted although others have reached the
// limit. It counts from then on.
func TestLedgerPermitsWhatWasReservedBeforeBeyondTheLimit(t *testing.T) {
	s := newSweeping(t, 1)
	s.add(driver.ResourceVM, namespace, "1")
	s.sweep(namespace)
	s.refuses()
	s.add(driver.ResourceVM, namespace, "2")
	s.fails("injected by the test") // the reservation of 1
	s.clock.Step(15 * time.Minute)
	s.fails("injected by the test") // 30 min later
	s.wantHeld(1)
	s.cloud.Work()
	s.Forget()
	s.sweep(namespace) // 45 min later
	s.wantDeleted("1")
	s.wantHeld(1)
	if n := s.Count("update leases"); n != 1 {
		t.Errorf("%d writes of the reservations, want 1", n)
	}
	s.Forget()
	for range 3 { // up to 45 min after the last reservation, 90 min after the first one
		s.sweep(namespace)
		s.wantDeleted("1")
		s.wantHeld(1)
	}
	if n := s.Count("update leases"); n != 0 {
		t.Errorf("%d writes of the reservations while nothing may be reserved", n)
	}
	s.sweep(namespace)
	s.wantDeleted("1", "2")
}

// What this process has reserved counts also when the Lease is deleted or restored.
func TestLedgerWhenLeaseIsGoneOwnReservationsCount(t *testing.T) {
	s := newSweeping(t, 1)
	s.add(driver.ResourceVM, namespace, "1")
	s.sweepTwice()
	s.wantDeleted("1")
	s.Remove("leases", "fleet", "fleet-safety")
	s.add(driver.ResourceVM, namespace, "2")
	s.sweepTwice()
	s.wantDeleted("1")
	s.wantHeld(1)
	s.sweep(namespace)
	s.sweep(namespace) // 60 min after the first deletion
	s.wantDeleted("1", "2")
}

// Reservations of another process age from when this one reads them, and not from when it has read
// earlier ones.
func TestLedgerReservationOfAnotherProcessBeginsToAgeWhenItIsRead(t *testing.T) {
	s := newSweeping(t, 1)
	s.putClass("other", providerOfClass)
	s.add(driver.ResourceVM, namespace, "1")
	s.sweepTwice()
	s.wantDeleted("1")
	first := s.orphans
	s.lead()
	s.add(driver.ResourceVM, "other", "2")
	s.sweep("other")
	s.clock.Step(15 * time.Minute)
	s.sweep("other") // 45 min after the first deletion
	s.wantDeleted("1", "2")
	s.orphans = first
	s.add(driver.ResourceVM, "other", "3")
	s.sweep("other")
	s.sweep("other")
	s.wantDeleted("1", "2")
	s.wantHeld(1)
}

// Reservations without a token count for an hour from when they are read.
func TestLedgerWithoutTokenOfAWriteCounts(t *testing.T) {
	s := newSweeping(t, 1)
	l, _ := decide.Ledger{}.Reserve(namespace, []decide.Suspect{{Resource: driver.Resource{Kind: driver.ResourceVM, ID: "earlier"}}}, 1)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: "fleet-safety", Annotations: map[string]string{v1alpha1.AnnotationOrphanDeletions: l.Text(), others: "1"},
	}}
	apiserver.Add(s.Server, lease)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweepTwice()
	s.wantDeleted()
	s.wantHeld(1)
	s.clock.Step(decide.Hour)
	s.sweep(namespace)
	s.wantDeleted("vm")
	if got := s.Get("leases", "fleet", "fleet-safety").GetAnnotations()[others]; got != "1" {
		t.Errorf("the annotation of another client is %q", got)
	}
}

// Two leaders that reserve at the same time: the second write is refused.
func TestLedgerWrittenMeanwhileReservesNothing(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "1")
	s.sweepTwice()
	s.wantDeleted("1")
	s.lead()
	s.add(driver.ResourceVM, namespace, "2")
	s.sweep(namespace)
	s.Fault(func(r apiserver.Request) error {
		if r.What() == "update leases" {
			s.Edit("leases", "fleet", "fleet-safety", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"written": "meanwhile"}) })
		}
		return nil
	})
	s.fails("reserve deletions")
	s.wantDeleted("1")
}

// A reservation that cannot be read permits nothing.
func TestLedgerThatCannotBeReadPermitsNothing(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "1")
	s.sweepTwice()
	s.Edit("leases", "fleet", "fleet-safety", func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{v1alpha1.AnnotationOrphanDeletions: "garbage"})
	})
	s.add(driver.ResourceVM, namespace, "2")
	s.sweep(namespace)
	s.fails("remove the annotation")
	s.wantDeleted("1")
	if got := s.ledgerText(); got != "garbage" {
		t.Errorf("the reservations became %q", got)
	}
}

// The deletions of a sweep wait for each other's reservations, and end with the leadership.
func TestLedgerReservesNothingWhenTheLeadershipEndsWhileItWaits(t *testing.T) {
	s := newSweeping(t, 10)
	s.orphans.ledger.mu.Lock()
	defer s.orphans.ledger.mu.Unlock()
	ctx, end := context.WithCancel(t.Context())
	end()
	if _, _, err := s.orphans.ledger.reserve(ctx, namespace, nil, nil, 10); err == nil {
		t.Error("no error after the end of the leadership")
	}
}
