package orphans

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

const (
	// planned is a namespace that is swept at about a fifth of a window.
	planned = "early"
	// soon is the window of a new leader.
	soon = timeBetween / plansInPeriod
)

// planning is a leader in virtual time. It records when the namespace is swept, and when the
// namespaces are listed.
type planning struct {
	*sweeping

	started time.Time
	mu      sync.Mutex // guards swept and listed
	swept   []string
	listed  []time.Duration
	fails   atomic.Bool // the next list of namespaces
}

func onPlanning(t *testing.T, test func(p *planning)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &planning{sweeping: newSweeping(t, 10), started: time.Now()}
		gate := &apitest.LeaderGate{}
		gate.Leads.Store(true)
		p.config.Gate, p.config.Clock, p.config.Period = gate, clock.RealClock{}, timeBetween
		p.config.Served = func(_ context.Context, namespace string) (bool, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if namespace == planned {
				p.swept = append(p.swept, fmt.Sprint(namespace, " ", time.Since(p.started)))
			}
			return false, nil
		}
		p.Fault(func(r apiserver.Request) error {
			if r.What() != "list machineclasses" {
				return nil
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.listed = append(p.listed, time.Since(p.started))
			if p.fails.CompareAndSwap(true, false) {
				return errors.New("the connection was closed")
			}
			return nil
		})
		p.putClass(planned, providerOfClass)
		p.lead()
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.orphans.Run(ctx)
		}()
		p.orphans.Led()
		test(p)
		end()
		<-ended
	})
}

// wantSweeps waits until a time, and compares the sweeps since the last call.
func (p *planning) wantSweeps(until time.Duration, want ...string) {
	p.Helper()
	time.Sleep(until - time.Since(p.started))
	synctest.Wait()
	slices.Sort(want)
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := slices.Sorted(slices.Values(p.swept)); !slices.Equal(got, want) {
		p.Errorf("until %s: sweeps %q, want %q", until, got, want)
	}
	p.swept = nil
}

// at returns a sweep of the namespace in a window that begins at a time.
func at(begin, window time.Duration) string {
	return fmt.Sprint(planned, " ", begin+offset(planned, window))
}

// A new leader sweeps within a quarter of the period, and then once in each period, however often
// the leader changes.
func TestPlanLeaderSweepsSoonAndThenOnceInEachPeriod(t *testing.T) {
	onPlanning(t, func(p *planning) {
		p.wantSweeps(30*time.Minute-time.Second, at(0, soon), at(15*time.Minute, timeBetween))
		p.wantSweeps(35*time.Minute, at(30*time.Minute, timeBetween))
		p.orphans.Led()
		next := 52*time.Minute + 30*time.Second // the first tick at which a period has passed
		p.wantSweeps(next, at(35*time.Minute, soon))
		p.wantSweeps(65*time.Minute, at(next, timeBetween))
		if want := []time.Duration{0, 15 * time.Minute, 30 * time.Minute, 35 * time.Minute, next}; !slices.Equal(p.listed, want) {
			t.Errorf("namespaces were listed at %s, want %s", p.listed, want)
		}
	})
}

// The retry of a plan that has failed has the same window.
func TestFailedListOfNamespacesIsTriedAgain(t *testing.T) {
	onPlanning(t, func(p *planning) {
		p.wantSweeps(14*time.Minute, at(0, soon))
		p.fails.Store(true)
		p.wantSweeps(25*time.Minute, at(16*time.Minute, timeBetween))
		p.fails.Store(true)
		p.orphans.Led()
		p.wantSweeps(30*time.Minute, at(26*time.Minute, soon))
	})
}

// A namespace with a request is swept at once, and when it is its turn.
func TestPlanNamespaceWithARequestIsSweptAtOnce(t *testing.T) {
	onPlanning(t, func(p *planning) {
		p.wantSweeps(14*time.Minute, at(0, soon))
		p.request(planned)
		p.wantSweeps(29*time.Minute, fmt.Sprint(planned, " ", 15*time.Minute), at(15*time.Minute, timeBetween))
	})
}

// What this process has seen is forgotten when the namespace has no MachineClass any more, and not
// before. So are its sweeps on request.
func TestPlanNamespaceWithoutClassesIsForgotten(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.request(namespace)
	s.sweep(namespace)
	for _, want := range []int{1, 0} {
		s.clock.Step(timeBetween)
		if _, err := s.orphans.reconcile(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if got := len(s.orphans.seen); got != want {
			t.Errorf("records of %d classes are known, want %d", got, want)
		}
		if got := len(s.orphans.extra); got != want {
			t.Errorf("sweeps on request of %d namespaces are known, want %d", got, want)
		}
		s.Remove("machineclasses", namespace, class)
	}
}

// While the ID of the control cluster is not known it is looked up soon, and not more often than
// sweeps take place.
func TestUnknownControlClusterIsTriedAgainSoon(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{timeBetween: shortestRetry, 10 * time.Second: 10 * time.Second} {
		s := newSweeping(t, 10)
		s.config.Period, s.id = period, ""
		s.lead()
		if again, err := s.orphans.reconcile(t.Context(), namespace); err != nil || again.RequeueAfter != want {
			t.Errorf("period %s: again after %s, error %v, want %s", period, again.RequeueAfter, err, want)
		}
	}
}
