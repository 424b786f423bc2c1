package orphans

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

func TestSweepOrphansAreDeletedInTheSecondSweepWithEventAndReceipt(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.add(driver.ResourceDisk, namespace, "disk")
	s.sweep(namespace)
	s.wantDeleted()
	s.sweep(namespace)
	s.wantDeleted("vm", "disk")
	s.wantReports("vm", "disk")
	for _, e := range s.eventsOf(v1alpha1.EventOrphanDeleted) {
		if e.about != namespace+"/"+class {
			t.Errorf("an Event about %s", e.about)
		}
	}
	why := "suspected for 15m0s; no Machine has its UID or provider ID"
	want := map[receipt.Kind]receipt.Object{
		receipt.VM: {
			Kind: receipt.VM, Namespace: namespace, ProviderID: "vm", Machine: "machine-of-vm", MachineUID: "uid-of-vm", Node: "node-of-vm",
		},
		"Disk": {Kind: "Disk", Namespace: namespace, Name: "disk", Machine: "machine-of-disk", MachineUID: "uid-of-disk"},
	}
	for _, r := range s.receipts() {
		if diff := cmp.Diff(want[r.Kind], r.Object); diff != "" || r.Reason != receipt.Because(receipt.Orphaned, why) {
			t.Errorf("receipt of a %s for %v (-want +got):\n%s", r.Kind, r.Reason, diff)
		}
	}
}

func TestDeletionThatTakesLongerThanASweepIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		limit     int
		approve   bool
		newLeader bool
	}{
		"within the limit": {limit: 10}, "with an approval": {approve: true},
		"under another leader": {limit: 10, newLeader: true}, "with an approval, under another leader": {approve: true, newLeader: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, c.limit)
			s.cloud.Lags = true
			s.add(driver.ResourceVM, namespace, "vm")
			s.add(driver.ResourceDisk, namespace, "disk")
			s.sweepTwice()
			if c.approve {
				s.approve(s.digest("vm", "disk"))
				s.sweep(namespace)
			}
			s.wantDeleted("vm", "disk")
			if c.newLeader {
				s.lead()
			}
			s.sweep(namespace)
			s.wantDeleted("vm", "disk", "vm", "disk")
			s.clock.Step(2 * time.Hour) // the reservations do not count any more
			s.sweep(namespace)
			s.wantReports("vm", "disk")
		})
	}
}

// A deletion without an answer has its own receipt, once.
func TestSweepRefusedDeletionIsReportedWhenItIsAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		code    driver.Code
		unknown int
	}{"refused": {driver.ResourceExhausted, 0}, "not answered": {driver.Unavailable, 1}} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.add(driver.ResourceVM, namespace, "vm")
			s.sweep(namespace)
			s.cloud.Fail(fakecloud.Fault{Code: c.code}, driver.OpSweep)
			for range 2 {
				s.clock.Step(timeBetween)
				if _, err := s.orphans.reconcile(t.Context(), namespace); err == nil {
					t.Error("no error of a deletion that failed")
				}
			}
			s.wantReports()
			s.cloud.Work()
			s.sweep(namespace)
			s.wantReports("vm")
			if n := len(s.receipts()) - 1; n != c.unknown {
				t.Errorf("%d receipts of an unknown outcome, want %d", n, c.unknown)
			}
		})
	}
}

func TestSweepMoreOrphansThanTheLimitAreHeldUntilExactlyTheseAreApproved(t *testing.T) {
	s := newSweeping(t, 2)
	s.add(driver.ResourceVM, namespace, "1", "2", "3")
	s.sweepTwice()
	s.wantDeleted()
	held := s.eventsOf(v1alpha1.EventOrphansHeld)
	if digest := s.digest("1", "2", "3"); len(held) != 1 || held[0].about != namespace+"/"+class ||
		!strings.Contains(held[0].text, "annotate MachineClass "+namespace+"/"+class+" with "+v1alpha1.AnnotationDeleteOrphans+"="+digest+".") ||
		!strings.Contains(held[0].text, "the limit is 2") {
		t.Errorf("Events OrphansHeld: %v, want one with the approval %s", held, digest)
	}
	for _, wrong := range []string{s.digest("1", "2"), s.digest("1", "2", "3", "4"), "true"} {
		s.approve(wrong)
		s.sweep(namespace)
		s.wantDeleted()
		if !s.isApproved() {
			t.Errorf("the approval %q of other orphans was removed", wrong)
		}
	}
	s.add(driver.ResourceVM, namespace, "later")
	s.approve(s.digest("1", "2", "3"))
	s.sweep(namespace)
	s.wantDeleted("1", "2", "3")
	s.wantReports("1", "2", "3")
	if s.isApproved() {
		t.Error("the approval was acted upon, and is still there")
	}
	for _, r := range s.receipts() {
		if !strings.HasSuffix(r.Evidence, "; approved") {
			t.Errorf("a receipt does not name the approval: %q", r.Evidence)
		}
	}
}

// The approval names the orphans that were held at its time. One that was confirmed since makes it
// void.
func TestApprovalIsVoidWhenFurtherOrphansAreHeld(t *testing.T) {
	s := newSweeping(t, 0)
	s.add(driver.ResourceVM, namespace, "1")
	s.sweep(namespace)
	s.add(driver.ResourceVM, namespace, "2")
	s.sweep(namespace)
	s.approve(s.digest("1"))
	s.sweep(namespace)
	s.wantDeleted()
}

func TestSweepNodeOfTheVM(t *testing.T) {
	for name, c := range map[string]struct {
		ready, providerID string // "" for no Node
		nameless          bool
		held              bool
	}{
		"Ready": {ready: "True", providerID: "vm", held: true}, "Ready without a provider ID": {ready: "True", held: true},
		"NotReady": {ready: "False", providerID: "vm"}, "Unknown": {ready: "Unknown", providerID: "vm"}, "absent": {},
		"Ready, of another VM": {ready: "True", providerID: "other"}, "not known to the driver": {nameless: true, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.add(driver.ResourceVM, namespace, "vm")
			if c.nameless {
				s.cloud.Change(func(all []*fakecloud.Resource) { all[0].NodeName = "" })
			}
			if c.ready != "" {
				s.put("nodes", map[string]any{
					"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-of-vm"},
					"spec":   map[string]any{"providerID": c.providerID},
					"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": c.ready}}},
				})
			}
			s.sweepTwice()
			if !c.held {
				s.wantDeleted("vm")
				return
			}
			s.wantDeleted()
			s.approve(s.digest("vm"))
			s.sweep(namespace)
			s.wantDeleted("vm")
		})
	}
}

// Neither a dry run nor a hold deletes anything, regardless of what was approved.
func TestSweepStoppedDeletesNothing(t *testing.T) {
	for stop, begin := range map[string]func(s *sweeping, begins bool){
		"dry run": func(s *sweeping, begins bool) {
			s.config.DryRun = begins
			s.lead()
		},
		"deletions are held: a test holds them": func(s *sweeping, begins bool) { s.held = begins },
	} {
		for name, prepare := range map[string]func(s *sweeping){
			"without an approval": func(*sweeping) {},
			"with an approval":    func(s *sweeping) { s.approve(s.digest("1", "2")) },
			"approved before": func(s *sweeping) {
				begin(s, false)
				s.config.Limit = 0
				s.lead()
				s.sweep(namespace)
				s.approve(s.digest("1", "2"))
				s.refuses()
				s.clock.Step(timeBetween)
				if _, err := s.orphans.reconcile(s.Context(), namespace); err == nil || s.isApproved() {
					s.Errorf("error %v, and an approval: %t", err, s.isApproved())
				}
				s.cloud.Work()
				begin(s, true)
			},
		} {
			t.Run(stop+", "+name, func(t *testing.T) {
				s := newSweeping(t, 10)
				s.add(driver.ResourceVM, namespace, "1", "2")
				begin(s, true)
				s.sweepTwice()
				prepare(s)
				s.sweepTwice()
				s.wantDeleted()
				s.wantReports()
				if text := s.lastHeld(); !strings.Contains(text, stop) || !strings.Contains(text, "also with an approval") {
					t.Errorf("Event OrphansHeld %q, want the reason %q", text, stop)
				}
				begin(s, false)
				s.sweepTwice()
				s.wantDeleted("1", "2")
				s.wantReports("1", "2")
			})
		}
	}
}

// The orphan whose deletion was reserved and not requested is deleted, and reported, after the
// hold.
func TestSweepHoldBetweenTwoDeletionsStopsTheSweep(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "1", "2", "3")
	s.cloud.Ends = func(*fakecloud.Resource) { s.held = true }
	s.sweepTwice()
	if len(s.cloud.Deleted()) != 1 {
		t.Fatalf("deleted %q, want one", s.cloud.Deleted())
	}
	first := s.cloud.Deleted()[0]
	s.sweepTwice()
	s.wantDeleted(first)
	s.held, s.cloud.Ends = false, nil
	s.sweep(namespace)
	s.wantDeleted("1", "2", "3")
	s.wantReports("1", "2", "3")
}

// Nothing is listed, and nothing deleted when it takes the namespace during a sweep.
func TestSweepNamespaceOfAnotherManagerIsLeftAlone(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	calls := 0
	s.served = func() bool {
		calls++
		return calls == 1
	}
	s.sweep(namespace)
	s.wantDeleted()
	s.Forget()
	s.sweep(namespace)
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests about a namespace of another manager", n)
	}
	s.served = func() bool { return true }
	s.sweep(namespace)
	s.wantDeleted("vm")
}

func TestSweepDriverWithoutSweeperListsNoMachines(t *testing.T) {
	for provider, want := range map[string]bool{"without a sweeper": false, providerOfClass: true} {
		t.Run(provider, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.putClass("other", provider)
			s.add(driver.ResourceVM, "other", "vm")
			s.sweep("other")
			s.sweep("other")
			if listed := s.Count("list machines") > 0; listed != want || (len(s.cloud.Deleted()) > 0) != want {
				t.Errorf("Machines were listed: %t, and deleted: %q, want %t", listed, s.cloud.Deleted(), want)
			}
		})
	}
}

func TestSweepUnknownControlClusterSkipsTheSweep(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	s.id = ""
	s.Forget()
	for range 2 {
		s.clock.Step(timeBetween)
		if again, err := s.orphans.reconcile(t.Context(), namespace); err != nil || again.RequeueAfter <= 0 || again.RequeueAfter > timeBetween {
			t.Errorf("requeued after %s, with error %v", again.RequeueAfter, err)
		}
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
	s.wantDeleted()
	s.id = ourCluster
	s.sweep(namespace)
	s.wantDeleted("vm")
}

func TestSweepOrphansInManyNamespacesAreLimitedForTheFleet(t *testing.T) {
	s := newSweeping(t, 1)
	var namespaces, all []string
	for i := range decide.FleetFactor + 1 {
		name := fmt.Sprint("n", i)
		s.putClass(name, providerOfClass)
		s.add(driver.ResourceVM, name, "vm-"+name)
		namespaces, all = append(namespaces, name), append(all, "vm-"+name)
	}
	s.sweep(namespaces...)
	s.sweep(namespaces...)
	within := all[:decide.FleetFactor]
	s.wantDeleted(within...)
	if text := s.lastHeld(); !strings.Contains(text, "in the fleet within an hour; the limit is 10") {
		t.Errorf("Event OrphansHeld: %q", text)
	}
	s.lead() // the next leader finds the reservations
	s.sweep(namespaces...)
	s.sweep(namespaces...)
	s.wantDeleted(within...)
	s.clock.Step(decide.Hour)
	s.sweep(namespaces...)
	s.wantDeleted(all...)
}
