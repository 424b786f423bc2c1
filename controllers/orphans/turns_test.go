package orphans

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// accounts is a cloud with an account for each MachineClass.
type accounts struct {
	driver.Sweeper

	list func(class string, page int) (items []driver.Resource, more bool)
}

func (a *accounts) Scope(r driver.ScopeRequest) (string, error) { return r.Class.Name, nil }

func (a *accounts) ListResources(_ context.Context, r driver.ListResourcesRequest) (answer driver.ListResourcesResponse, err error) {
	page := 0
	if _, err := fmt.Sscan(r.Continue, &page); r.Continue != "" && err != nil {
		return answer, err
	}
	items, more := a.list(r.Class.Namespace+"/"+r.Class.Name, page+1)
	if more {
		answer.Continue = fmt.Sprint(page + 1)
	}
	answer.Items = items
	return answer, nil
}

// addAccounts gives the namespace a number of MachineClasses with an account each, and has a new
// leader sweep them.
func (s *sweeping) addAccounts(number int, list func(class string, page int) ([]driver.Resource, bool)) {
	s.Helper()
	s.Remove("machineclasses", namespace, class)
	for i := range number {
		s.putClassOfName(namespace, fmt.Sprintf("c%02d", i), providerOfClass)
	}
	cloud := &accounts{Sweeper: s.cloud.Driver(), list: list}
	s.config.Sweeper = func(string) (driver.Sweeper, bool) { return cloud, true }
	s.lead()
}

// Eight namespaces have 48 accounts each, whose lists take half an hour. Another is swept in its
// turn all the same: their sweeps take 45 min each at most, and four take place at a time. Half of
// the others are new when the leader has begun.
func TestSweepsOfSlowNamespacesDelayOthersForABoundedTime(t *testing.T) {
	const hostile, others, lasts = 8, 8, 24 * time.Hour
	longest := 2*timeBetween + hostile/sweepsAtOnce*(longestList+longestRest)
	synctest.Test(t, func(t *testing.T) {
		s := newSweeping(t, 10)
		gate := &apitest.LeaderGate{}
		gate.Leads.Store(true)
		s.config.Gate, s.config.Clock = gate, clock.RealClock{}
		begun := time.Now()
		var mu sync.Mutex
		last := map[string]time.Time{}
		swept := func(class string) { // and checks how long it was not
			mu.Lock()
			defer mu.Unlock()
			if since := time.Since(last[class]); !last[class].IsZero() && since > longest {
				t.Errorf("%s: %s was not listed for %s, want %s at most", time.Since(begun), class, since, longest)
			}
			last[class] = time.Now()
		}
		s.addAccounts(1, func(class string, _ int) ([]driver.Resource, bool) {
			if strings.HasPrefix(class, "hostile") {
				time.Sleep(time.Minute)
				return nil, true
			}
			swept(class)
			return nil, false
		})
		add := func(name string, classes int) {
			s.putClass(name, providerOfClass)
			for i := 1; i < classes; i++ {
				s.putClassOfName(name, fmt.Sprint("c", i), providerOfClass)
			}
			mu.Lock()
			defer mu.Unlock()
			if classes == 1 {
				last[name+"/"+class] = time.Now()
			}
		}
		for i := range hostile {
			add(fmt.Sprint("hostile-", i), 48)
		}
		for i := range others / 2 {
			add(fmt.Sprint("other-", i), 1)
		}
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.orphans.Run(ctx) })
		s.orphans.Led()
		time.Sleep(2 * time.Hour)
		for i := others / 2; i < others; i++ {
			add(fmt.Sprint("other-", i), 1)
		}
		time.Sleep(lasts - 2*time.Hour)
		mu.Lock()
		all := slices.Sorted(maps.Keys(last))
		mu.Unlock()
		for _, class := range all {
			swept(class)
		}
		end()
		running.Wait()
	})
}

// An account that takes all of the time delays those of its namespace by one sweep each: the next
// sweep begins with the next account.
func TestSweepAccountsOfANamespaceTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		pages map[string]int // a minute each
		want  []string       // complete lists of each sweep
	}{
		"quick ones":    {map[string]int{"c00": 9, "c01": 9, "c02": 9}, []string{"c00 c01 c02", "c00 c01 c02"}},
		"one is slow":   {map[string]int{"c00": 99, "c01": 9, "c02": 9}, []string{"", "c01 c02", "", "c01 c02"}},
		"all are slow":  {map[string]int{"c00": 29, "c01": 29, "c02": 29}, []string{"c00", "c01", "c02", "c00"}},
		"two at a time": {map[string]int{"c00": 14, "c01": 14, "c02": 14}, []string{"c00 c01", "c02 c00", "c01 c02", "c00 c01"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			var listed []string
			s.addAccounts(3, func(class string, page int) ([]driver.Resource, bool) {
				s.clock.Step(time.Minute)
				class = strings.TrimPrefix(class, namespace+"/")
				if page < c.pages[class] {
					return nil, true
				}
				listed = append(listed, class)
				return nil, false
			})
			for i, want := range c.want {
				listed = nil
				_, err := s.orphans.reconcile(t.Context(), namespace)
				if got := strings.Join(listed, " "); got != want || (err == nil) != (len(listed) == 3) {
					t.Errorf("sweep %d: %q was listed, want %q; error %v", i, got, want, err)
				}
			}
		})
	}
}

// What a sweep has in memory of the suspects of all accounts is bounded, and those of each account
// are recorded in its turn.
func TestSweepSuspectsOfANamespaceAreBounded(t *testing.T) {
	s := newSweeping(t, 10)
	const number = 12
	s.addAccounts(number, func(class string, _ int) (items []driver.Resource, more bool) {
		for i := range 2 * decide.MaxSuspects {
			id := fmt.Sprint(class, "-", i)
			items = append(items, driver.Resource{Kind: driver.ResourceVM, ID: id, Namespace: namespace, Machine: "m", MachineUID: types.UID(id)})
		}
		return items, false
	})
	for sweep, want := range []int{mostSuspects / decide.MaxSuspects, number} {
		s.fails("later sweeps list MachineClass")
		recorded := 0
		for _, o := range s.List("machineclasses") {
			if len(o.GetAnnotations()) > 0 {
				recorded++
			}
		}
		if recorded != want {
			t.Errorf("sweep %d: suspects of %d accounts are recorded, want %d", sweep, recorded, want)
		}
	}
}

// Deletions and reads of a cloud, or of a target cluster, that take long end, and go on in the next
// sweep.
func TestSweepSlowDeletionsAndReadsEnd(t *testing.T) {
	const orphansOfTest = 40
	prepare := func(t *testing.T) *sweeping {
		t.Helper()
		s := newSweeping(t, orphansOfTest)
		for i := range orphansOfTest {
			s.add(driver.ResourceVM, namespace, fmt.Sprint("vm-", i))
		}
		s.sweep(namespace)
		return s
	}
	deletedAt := func(s *sweeping, want ...int) {
		s.Helper()
		for sweep, all := range want {
			s.clock.Step(timeBetween)
			_, err := s.orphans.reconcile(s.Context(), namespace)
			if got := len(s.cloud.Deleted()); got != all || (err == nil) != (all == orphansOfTest) {
				s.Errorf("sweep %d: %d deletions so far, want %d; error %v", sweep, got, all, err)
			}
		}
	}
	t.Run("deletions", func(t *testing.T) {
		s := prepare(t)
		s.cloud.Way = func(_ context.Context, call fakecloud.Call, send func() error) error {
			if call.Op == driver.OpSweep {
				s.clock.Step(time.Minute)
			}
			return send()
		}
		deletedAt(s, 16, 32, orphansOfTest)
	})
	t.Run("reads of Nodes", func(t *testing.T) {
		s := prepare(t)
		takes := time.Minute
		s.Fault(func(r apiserver.Request) error {
			if r.What() == "get nodes" {
				s.clock.Step(takes)
			}
			return nil
		})
		deletedAt(s, 11)
		if n := s.Count("get nodes"); n > 11 {
			t.Errorf("%d Nodes were read, want the end after 10 min", n)
		}
		if l, err := decide.ParseLedger(s.ledgerText()); err != nil || len(l.Reserved[namespace]) != 11 {
			t.Errorf("reservations %v, error %v, want 11", l.Reserved, err)
		}
		takes = time.Second
		deletedAt(s, orphansOfTest)
	})
}

// Accounts whose deletions are slow take turns, too.
func TestSweepSlowDeletionsOfOneAccountDelayOthersByASweep(t *testing.T) {
	s := newSweeping(t, decide.MaxLimit)
	var deleted []string
	s.addAccounts(2, func(class string, _ int) (items []driver.Resource, more bool) {
		for i := range 20 {
			id := fmt.Sprint(strings.TrimPrefix(class, namespace+"/"), "-", i)
			items = append(items, driver.Resource{Kind: driver.ResourceDisk, ID: id, Namespace: namespace, Machine: "m", MachineUID: types.UID(id)})
		}
		return items, false
	})
	s.cloud.Way = func(_ context.Context, call fakecloud.Call, _ func() error) error {
		s.clock.Step(time.Minute)
		deleted = append(deleted, call.Resource.ID)
		return driver.Errorf(driver.OpSweep, driver.DeadlineExceeded, "no answer")
	}
	s.sweep(namespace)
	s.fails("no answer")
	s.fails("no answer")
	if len(deleted) != 32 || !strings.HasPrefix(deleted[0], "c00") || !strings.HasPrefix(deleted[31], "c01") {
		t.Errorf("deletions of %q, want some of each account", deleted)
	}
}

// disksOf returns a number of orphans of an account.
func disksOf(class string, number int) (items []driver.Resource) {
	for i := range number {
		id := fmt.Sprint(strings.TrimPrefix(class, namespace+"/"), "-", i)
		items = append(items, driver.Resource{
			Kind: driver.ResourceDisk, ID: id, Namespace: namespace, Machine: "m-" + id, MachineUID: types.UID("uid-of-" + id),
		})
	}
	return items
}

// slowReads has each read of a Machine take some time.
func (s *sweeping) slowReads(takes time.Duration) {
	s.Fault(func(r apiserver.Request) error {
		if r.What() == "get machines" {
			s.clock.Step(takes)
		}
		return nil
	})
}

// One account has more suspects than can be confirmed in the time of a sweep. What is confirmed is
// deleted, and later sweeps go on with the others.
func TestSlowReadsOfOneAccountDeleteAllOrphansInTheEnd(t *testing.T) {
	s := newSweeping(t, decide.MaxLimit)
	deleted, number := map[string]bool{}, map[string]int{"c00": 2, "c01": 490, "c02": 2}
	s.addAccounts(len(number), func(class string, _ int) (items []driver.Resource, more bool) {
		return slices.DeleteFunc(disksOf(class, number[strings.TrimPrefix(class, namespace+"/")]), func(r driver.Resource) bool {
			return deleted[r.ID]
		}), false
	})
	s.cloud.Way = func(_ context.Context, call fakecloud.Call, _ func() error) error {
		deleted[call.Resource.ID] = true
		return nil
	}
	s.slowReads(2 * time.Second)
	s.sweep(namespace)
	s.fails("later sweeps confirm these")
	s.sweep(namespace)
	if len(deleted) != 494 {
		t.Errorf("%d orphans were deleted, want 494", len(deleted))
	}
}

// An account whose suspects are confirmed and not deleted, as they are held, takes turns with the
// others.
func TestSlowReadsOfOneAccountLeaveTurnsForOthers(t *testing.T) {
	s := newSweeping(t, decide.MaxLimit)
	s.addAccounts(3, func(class string, _ int) (items []driver.Resource, more bool) { return disksOf(class, 20), false })
	confirmed := map[string]int{}
	s.orphans.rules.confirm = func(f decide.Facts) decide.Verdict {
		class, _, _ := strings.Cut(f.ID, "-")
		confirmed[class]++
		return decide.Verdict{Do: decide.Hold, Why: "test"}
	}
	s.slowReads(time.Minute)
	s.sweep(namespace)
	for range 3 {
		s.fails("later sweeps confirm these")
	}
	for _, class := range []string{"c00", "c01", "c02"} {
		if confirmed[class] != 11 {
			t.Errorf("in three sweeps %d suspects of %s were checked, want 11", confirmed[class], class)
		}
	}
}

// Suspects that were not checked in time may be orphans: they count for the limit, and a part of
// what is held cannot be approved.
func TestLimitAndApprovalAreForAllSuspectsWhenReadsAreSlow(t *testing.T) {
	s := newSweeping(t, 39)
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprint("disk-", i))
	}
	s.add(driver.ResourceDisk, namespace, all...)
	slices.SortFunc(all, func(a, b string) int {
		return strings.Compare(string(s.suspects[a].Key()), string(s.suspects[b].Key()))
	})
	s.slowReads(time.Minute)
	s.sweep(namespace)
	for range 2 {
		s.fails("later sweeps confirm these")
		s.wantDeleted()
		want := "within an hour; the limit is 39; 29 were not checked in time, and count. " +
			"29 other suspects of the account were not checked in time; these can be approved"
		if text := s.lastHeld(); !strings.Contains(text, "Held 11 orphans: with these 40 ") || !strings.Contains(text, want) {
			t.Errorf("Event OrphansHeld %q, want %q", text, want)
		}
		s.approve(s.digest(all[:11]...))
	}
	s.slowReads(0)
	s.approve(s.digest(all...))
	s.sweep(namespace)
	s.wantDeleted(all...)
}

// Twenty accounts of which a sweep lists ten in its time, and whose deletions get no answer for a
// minute each: deletions are tried in all of them in their turn.
func TestAllAccountsHaveTheirTurnWhenListsAndDeletionsAreCutOff(t *testing.T) {
	s := newSweeping(t, decide.MaxLimit)
	s.addAccounts(20, func(class string, _ int) (items []driver.Resource, more bool) {
		s.clock.Step(longestList/10 + time.Second)
		return disksOf(class, 20), false
	})
	tried := map[string]int{}
	s.cloud.Way = func(_ context.Context, call fakecloud.Call, _ func() error) error {
		class, _, _ := strings.Cut(call.Resource.ID, "-")
		tried[class]++
		s.clock.Step(time.Minute)
		return driver.Errorf(driver.OpSweep, driver.DeadlineExceeded, "no answer")
	}
	for range 30 {
		s.fails("later sweeps list MachineClass")
	}
	if len(tried) < 20 {
		t.Errorf("in 30 sweeps deletions were tried in %d of 20 accounts: %v", len(tried), tried)
	}
}
