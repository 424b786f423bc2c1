package pacing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaiterForALockDoesNotStopTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Mutex
		m.Lock()
		if m.TryLock() {
			t.Error("a lock that is held was acquired")
		}
		got := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			m.Lock()
			got <- time.Since(began)
		}()
		time.Sleep(time.Minute)
		m.Unlock()
		if after := <-got; after != time.Minute {
			t.Errorf("the lock was acquired after %s, want one minute", after)
		}
		m.Unlock()
		if !m.TryLock() {
			t.Error("a lock that is not held was not acquired")
		}
	})
}

func TestLockContextWhenContextEndsReturnsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Mutex
		if err := m.LockContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.LockContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
		m.Unlock()
		if !m.TryLock() {
			t.Error("the lock is held after LockContext failed")
		}
	})
}

func TestTurnsOfOneKeyDoNotWaitForThoseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns[string]
		lock := func(ctx context.Context, key string) func() {
			unlock, err := turns.Lock(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			return unlock
		}
		began, first := time.Now(), lock(t.Context(), "a")
		lock(t.Context(), "b")()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.Lock(short, "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("a key that is locked: %v after %s", err, time.Since(began))
		}
		go func() {
			time.Sleep(time.Minute)
			first()
		}()
		lock(t.Context(), "a")()
		if took := time.Since(began); took != time.Minute+time.Second || len(turns.all) != 0 {
			t.Errorf("the lock was acquired after %s, and %d remain", took, len(turns.all))
		}
	})
}
