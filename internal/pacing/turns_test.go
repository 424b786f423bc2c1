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
