// Package labtest has what the tests of this module share: waits in real time, and Main, by which
// tests run where containers can run: in namespaces as those of a machine (see package vm).
//
// Guarantees: a wait ends when what it waits for comes, or fails when nothing has changed for
// Standstill. Not guaranteed: when it comes. That is for tests in virtual time.
package labtest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Standstill is how long nothing may change before a wait fails. It makes a hang fail: what takes
// milliseconds on an idle machine takes seconds on a busy one.
const Standstill = 10 * time.Minute

const interval = 5 * time.Millisecond

// Until waits until check returns nil. The error of check shows progress: it fails the test when
// that is the same for Standstill.
func Until(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, changed := "", time.Now()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), Standstill)
		err := check(ctx)
		cancel()
		switch {
		case err == nil:
			return
		case err.Error() != last:
			last, changed = err.Error(), time.Now()
		case time.Since(changed) >= Standstill:
			t.Fatalf("%s: nothing has changed for %s: %v", what, Standstill, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: %v: %v", what, t.Context().Err(), err)
		case <-tick.C:
		}
	}
}

// For waits until a condition holds.
func For(t *testing.T, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func(context.Context) error {
		if holds() {
			return nil
		}
		return errors.New("not yet")
	})
}
