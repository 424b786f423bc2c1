package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const sharedName Name = "shared"

// tenantOf is a controller of a tenant.
type tenantOf struct {
	Queue
	end    func() // ends it, and waits
	passes atomic.Int32
	broken atomic.Pointer[error]
}

var named = types.NamespacedName{Name: "a"}

func startShared(t *testing.T, workers int) *Shared {
	t.Helper()
	s, err := NewShared(SharedConfig{
		Names: map[Name]string{sharedName: "key"}, Workers: workers, WorkersPerTenant: 1, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *Shared) start(t *testing.T, name string, pass func(ctx context.Context)) *tenantOf {
	t.Helper()
	tenant := &tenantOf{}
	share := s.For(name, func() error {
		if err := tenant.broken.Load(); err != nil {
			return *err
		}
		return nil
	})
	var err error
	tenant.Queue, err = QueueOf(share, Config[types.NamespacedName]{
		Name: sharedName, Reconcile: func(ctx context.Context, key types.NamespacedName) (Result, error) {
			if key != named {
				t.Errorf("a pass of key %s, want %s", key, named)
			}
			tenant.passes.Add(1)
			pass(ctx)
			return Result{}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	tenant.Enqueue(named) // before it runs
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { tenant.Run(ctx); close(done) }()
	tenant.end = func() { cancel(); <-done }
	return tenant
}

// Tenants have keys of one name, each for itself. One that has ended has no pass any more, and its
// end waits for the pass in work, whose context ends; one of the same name follows it.
func TestTenantsShareARunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startShared(t, 2)
		var ended bool
		first := s.start(t, "x", func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		})
		other := s.start(t, "y", func(context.Context) {})
		synctest.Wait()
		first.end()
		if !ended {
			t.Error("the end does not wait for the pass in work")
		}
		first.Enqueue(named)
		second := s.start(t, "x", func(context.Context) {})
		synctest.Wait()
		second.EnqueueAfter(named, time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a, b, c := first.passes.Load(), second.passes.Load(), other.passes.Load(); a != 1 || b != 2 || c != 1 {
			t.Errorf("%d passes of the first, %d of the second of its name, %d of the other tenant, want 1, 2 and 1", a, b, c)
		}
		second.end()
		other.end()
	})
}

// awayError is that of a tenant that is away.
type awayError struct{ error }

func (awayError) Wait() time.Duration { return time.Minute }

// The keys of a tenant that cannot be used wait.
func TestKeysWaitUntilTheirTenantIsUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startShared(t, 2)
		tenant := s.start(t, "x", func(context.Context) {})
		synctest.Wait()
		var away error = awayError{errors.New("away")}
		tenant.broken.Store(&away)
		tenant.Enqueue(named)
		time.Sleep(30 * time.Second)
		tenant.broken.Store(nil)
		if n := tenant.passes.Load(); n != 1 {
			t.Errorf("%d passes of a tenant that is away, want 1 from before", n)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if n := tenant.passes.Load(); n != 2 {
			t.Errorf("%d passes of the tenant when it is back, want 2", n)
		}
		tenant.end()
	})
}

// Work of one tenant that hangs occupies its own worker only.
func TestATenantThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startShared(t, 2)
		hangs := s.start(t, "x", func(ctx context.Context) { <-ctx.Done() })
		other := s.start(t, "y", func(context.Context) {})
		synctest.Wait()
		if n := other.passes.Load(); n != 1 {
			t.Errorf("%d passes of the other tenant, want 1", n)
		}
		hangs.end()
		other.end()
	})
}
