package runner

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestGroupsTakeTurns(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	q := newFairQueue(func(string) string { return "" }, func(key string) int { return int(key[0]) }, 0, now)
	for _, key := range []string{"a1", "a2", "a3", "b1"} {
		q.Push(key)
	}
	now.SetTime(now.Now().Add(time.Second))
	q.Push("c1")
	q.Push("b2")
	if got := q.oldest(); got != time.Second {
		t.Errorf("the oldest key has waited for %s, want 1s", got)
	}
	var got []string
	for q.Len() > 0 {
		got = append(got, q.Pop())
	}
	if diff := cmp.Diff([]string{"a1", "b1", "c1", "a2", "b2", "a3"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if got := q.oldest(); got != 0 {
		t.Errorf("nothing waits, and that since %s", got)
	}
}

func TestOverdueKeysAreThoseThatWaitLonger(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	q := newFairQueue(func(key string) string { return key[:1] }, func(key string) int { return int(key[1]) }, 1, now)
	overdue := func() int { return q.overdue(5 * time.Second) }
	for _, key := range []string{"ax1", "ax2", "ay1", "bx1"} {
		q.Push(key)
	}
	now.SetTime(now.Now().Add(5 * time.Second))
	for _, key := range []string{"ax3", "bx2"} {
		q.Push(key)
	}
	if got := overdue(); got != 0 {
		t.Errorf("after exactly 5s %d keys are overdue, want none", got)
	}
	now.SetTime(now.Now().Add(time.Second))
	if got := overdue(); got != 4 {
		t.Errorf("%d keys are overdue, want the 4 that have waited for 6s", got)
	}
	// Those of a tenant that has its maximum in work wait, too.
	q.Pop()
	if got := overdue(); got != 3 {
		t.Errorf("%d keys are overdue, want 3: one is in work", got)
	}
}

func TestOverdueKeysOfAllRunners(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	metrics := NewMetrics(prometheus.NewRegistry())
	for _, name := range []string{"a", "b"} {
		r, err := New(Config[string]{
			Name: name, Metrics: metrics, Clock: now, Reconcile: func(context.Context, string) (Result, error) { return Result{}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.queue.ShutDown()
		r.Enqueue("x")
		r.Enqueue("y")
	}
	now.Step(time.Minute)
	if got := metrics.Overdue(time.Second); got != 4 {
		t.Errorf("%d keys are overdue, want 2 of each of the 2 runners", got)
	}
}

// TestLongWorkOfOneSlotDoesNotStarveAnother: one worker, a hundred keys of a minute each in one
// group, and one in another that comes last.
func TestLongWorkOfOneSlotDoesNotStarveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var waited time.Duration
		r := start(t, Config[string]{
			Group: func(key string) int { return int(key[0]) },
			Reconcile: func(_ context.Context, key string) (Result, error) {
				if key == "last" {
					waited = time.Since(begun)
				}
				time.Sleep(time.Minute)
				return Result{}, nil
			},
		})
		for i := range 100 {
			r.Enqueue(fmt.Sprintf("many %d", i))
		}
		r.Enqueue("last")
		elapse(10 * time.Minute)
		if waited > 2*time.Minute {
			t.Errorf("the other slot's key waited for %s, want at most two keys' time", waited)
		}
		elapse(2 * time.Hour)
	})
}

// tenant returns the part before the slash of a key of these tests.
func tenant(key string) string {
	name, _, _ := strings.Cut(key, "/")
	return name
}

// popAll pops all keys that may be popped.
func popAll(q *fairQueue[string]) (keys []string) {
	for q.Len() > 0 {
		keys = append(keys, q.Pop())
	}
	return keys
}

func TestTenantsTakeTurnsBeforeGroups(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	group := func(key string) int { return int(key[len(key)-1]) }
	q := newFairQueue(tenant, group, 0, now)
	for _, key := range []string{"a/1", "a/2", "a/3", "a/x1", "b/1"} {
		q.Push(key)
	}
	if diff := cmp.Diff([]string{"a/1", "b/1", "a/2", "a/3", "a/x1"}, popAll(q)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestKeysOfATenantWaitWhileItHasAllItMayHaveInWork(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	q := newFairQueue(tenant, func(string) int { return 0 }, 2, now)
	for _, key := range []string{"a/1", "a/2", "a/3", "a/4", "b/1"} {
		q.Push(key)
	}
	steps := []struct {
		done string
		want []string
	}{
		{"", []string{"a/1", "b/1", "a/2"}},
		{"b/1", nil},
		{"a/2", []string{"a/3"}},
		{"a/1", []string{"a/4"}},
		{"a/3", nil},
		{"a/4", nil},
	}
	for _, step := range steps {
		if step.done != "" {
			q.done(step.done)
		}
		if diff := cmp.Diff(step.want, popAll(q)); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", step.done, diff)
		}
	}
	if len(q.tenants) != 0 || len(q.turns) != 0 {
		t.Errorf("%d tenants and %d turns are remembered of an empty queue", len(q.tenants), len(q.turns))
	}
}

// TestManyKeysThatHangDoNotDelayAnotherTenant has 600 keys of a tenant take a minute each, again
// and again, and then a key of another one come every second, which takes a second. It begins at
// once, with as many workers as the first may have, and one more.
func TestManyKeysThatHangDoNotDelayAnotherTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		hanging, most, reconciled := 0, 0, 0
		sent := map[string]time.Time{}
		r := start(t, Config[string]{
			Workers: 21, WorkersPerTenant: 20, Tenant: tenant,
			Reconcile: func(_ context.Context, key string) (Result, error) {
				mu.Lock()
				defer mu.Unlock()
				took, again := time.Second, time.Duration(0)
				if tenant(key) == "hangs" {
					took, again = time.Minute, time.Second
					hanging++
					most = max(most, hanging)
					defer func() { hanging-- }()
				} else {
					reconciled++
					if waited := time.Since(sent[key]); waited > 0 {
						t.Errorf("%s waited for %s", key, waited)
					}
				}
				mu.Unlock()
				time.Sleep(took)
				mu.Lock()
				return Result{RequeueAfter: again}, nil
			},
		})
		for i := range 600 {
			r.Enqueue(fmt.Sprint("hangs/", i))
		}
		elapse(time.Second)
		for i := range 100 {
			key := fmt.Sprint("works/", i)
			mu.Lock()
			sent[key] = time.Now()
			mu.Unlock()
			r.Enqueue(key)
			elapse(1500 * time.Millisecond)
		}
		mu.Lock()
		if most != 20 || reconciled != 100 {
			t.Errorf("%d keys of the tenant that hangs were in work at a time, want 20; %d of the other were, want 100", most, reconciled)
		}
		mu.Unlock()
	})
}

// TestAllKeysOfATenantAreReconciledInTheEnd: no wake-up is lost where a tenant is kept waiting.
func TestAllKeysOfATenantAreReconciledInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Int32
		r := start(t, Config[string]{
			Workers: 16, WorkersPerTenant: 3, Tenant: tenant,
			Reconcile: func(_ context.Context, key string) (Result, error) {
				time.Sleep(time.Duration(len(key)) * time.Second)
				done.Add(1)
				return Result{}, nil
			},
		})
		for i := range 1000 {
			r.Enqueue(fmt.Sprintf("%c/%d", 'a'+i%7, i*i))
			if i%10 == 0 {
				elapse(time.Second)
			}
		}
		elapse(time.Hour)
		if done.Load() != 1000 {
			t.Errorf("%d keys were reconciled, want 1000", done.Load())
		}
	})
}

// TestWorkersRunWhileThereAreKeys: at rest one waits, of a burst as many keys are in work as are
// allowed, and after it few wait.
func TestWorkersRunWhileThereAreKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 200
		var inWork atomic.Int32
		r := start(t, Config[string]{Workers: most, Reconcile: func(context.Context, string) (Result, error) {
			inWork.Add(1)
			time.Sleep(time.Second)
			inWork.Add(-1)
			return Result{}, nil
		}})
		running := func() int {
			r.workers.mu.Lock()
			defer r.workers.mu.Unlock()
			return r.workers.running
		}
		elapse(time.Second)
		if n := running(); n != 1 {
			t.Errorf("%d workers at rest, want 1", n)
		}
		for i := range 3 * most {
			r.Enqueue(fmt.Sprint(i))
		}
		elapse(500 * time.Millisecond)
		if n, keys := running(), inWork.Load(); n != most || keys != most {
			t.Errorf("%d workers have %d keys, want %d", n, keys, most)
		}
		elapse(time.Minute)
		for range most { // those that wait after a burst, because they saw a key that another one took, end one after the other
			r.Enqueue("key")
			elapse(2 * time.Second)
		}
		if n := running(); n != 1 {
			t.Errorf("%d workers after the burst, want 1", n)
		}
	})
}

// TestEndOfAKeyMakesRoomForTheNext: nothing reports to a worker that waits that a tenant may have
// another key in work.
func TestEndOfAKeyMakesRoomForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		r := start(t, Config[string]{
			Workers: 8, WorkersPerTenant: 2, Tenant: tenant,
			Reconcile: func(_ context.Context, key string) (Result, error) {
				begun.Add(1)
				if key == "a/0" {
					time.Sleep(time.Hour)
				}
				time.Sleep(time.Second)
				return Result{}, nil
			},
		})
		for i := range 5 {
			r.Enqueue(fmt.Sprint("a/", i))
		}
		elapse(time.Minute)
		if n := begun.Load(); n != 5 {
			t.Errorf("%d keys were begun while one takes long, want 5", n)
		}
	})
}

// A controller that says nothing of it leaves workers for others.
func TestHowManyWorkersATenantHas(t *testing.T) {
	for _, tc := range []struct{ workers, most int }{{1, 1}, {4, 1}, {5, 2}, {800, 200}} {
		if got := workersPerTenant(Config[string]{Workers: tc.workers, Tenant: tenant}); got != tc.most {
			t.Errorf("of %d workers a tenant has %d, want %d", tc.workers, got, tc.most)
		}
	}
	if got := workersPerTenant(Config[types.NamespacedName]{Workers: 8}); got != 2 {
		t.Errorf("of 8 workers a namespace has %d, want 2", got)
	}
	if got := workersPerTenant(Config[string]{Workers: 8, Tenant: tenant, WorkersPerTenant: 7}); got != 7 {
		t.Errorf("of 8 workers a tenant has %d, want the 7 that were asked for", got)
	}
	if got := workersPerTenant(Config[string]{Workers: 8}); got != 0 {
		t.Errorf("of 8 workers keys without a tenant have %d, want any number", got)
	}
}

// TestNoTenantHasAllWorkers has all keys of a tenant hang without end.
func TestNoTenantHasAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var others atomic.Int32
		r := start(t, Config[string]{Workers: 8, Tenant: tenant, Reconcile: func(ctx context.Context, key string) (Result, error) {
			if tenant(key) == "hangs" {
				<-ctx.Done()
				return Result{}, nil
			}
			others.Add(1)
			return Result{}, nil
		}})
		for i := range 100 {
			r.Enqueue(fmt.Sprint("hangs/", i))
		}
		elapse(time.Minute)
		r.Enqueue("works/1")
		elapse(time.Second)
		if others.Load() != 1 {
			t.Error("a key of another tenant waits")
		}
	})
}
