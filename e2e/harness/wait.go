package harness

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Standstill is how long nothing may change before a wait fails. It is the only bound in real time
// that tests of labs have, and makes a hang fail. It is no promise: those are measured in virtual
// time. What takes seconds on an idle machine takes minutes on a busy one.
const Standstill = 10 * time.Minute

// pollInterval of Eventually. Short, because benchmarks measure with it, too.
const pollInterval = 50 * time.Millisecond

// Eventually calls check repeatedly until it returns nil. It fails, with the last error of check,
// when that has been the same for Standstill, or ctx ends: that of a test ends when the lab does,
// see Lab.Context.
func Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	return EventuallyEvery(ctx, pollInterval, what, check)
}

// EventuallyEvery is Eventually with a longer interval, for example for many tests at a time on one
// lab.
func EventuallyEvery(ctx context.Context, interval time.Duration, what string, check func(context.Context) error) error {
	return eventually(ctx, interval, interval, what, check)
}

// The interval of EventuallyLasting grows with the time waited: it is that divided by
// waitedPerInterval, and at most longestInterval.
const (
	waitedPerInterval = 10
	longestInterval   = time.Second
)

// EventuallyLasting is EventuallyEvery for a state that does not end by itself. The interval is
// only that of the first checks: waits of minutes, many at a time, would else be much of the work
// of the API servers.
func EventuallyLasting(ctx context.Context, interval time.Duration, what string, check func(context.Context) error) error {
	return eventually(ctx, interval, longestInterval, what, check)
}

func eventually(ctx context.Context, interval, longest time.Duration, what string, check func(context.Context) error) error {
	began := time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last error
	changed := began // when last became what it is
	for {
		bounded, cancel := context.WithTimeout(ctx, Standstill) // a request that is never answered
		err := check(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil && err.Error() != last.Error() {
			last, changed = err, time.Now()
		}
		if time.Since(changed) >= Standstill {
			return fmt.Errorf("wait until %s: nothing has changed for %s; last error: %w", what, Standstill, last)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last error: %w", what, context.Cause(ctx), last)
		case <-tick.C:
			if grown := min(time.Since(began)/waitedPerInterval, longest); grown > interval {
				tick.Reset(grown)
			}
		}
	}
}

// cleanUp is how long before the time limit of all tests a test stops waiting: a test that still
// runs at the limit is killed, does not report what it waited for, and leaves its lab behind.
const cleanUp = time.Minute

// untilCleanUp returns a context that ends shortly before the time for all tests is over.
func untilCleanUp(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	end, limited := t.Deadline()
	if !limited {
		return ctx
	}
	ctx, cancel := context.WithDeadlineCause(ctx, end.Add(-cleanUp), errors.New("the time limit of all tests is near"))
	t.Cleanup(cancel)
	return ctx
}

// Context returns the context of a test's waits in the lab. It ends with the test, shortly before
// the time for all tests is over, and when the launcher has ended: the lab's processes end with it,
// and nothing makes progress any more.
func (l *Lab) Context(t *testing.T) context.Context {
	t.Helper()
	return l.whileUp(untilCleanUp(t.Context(), t), t)
}

// whileUp returns a context that ends when the launcher has ended.
func (l *Lab) whileUp(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	t.Cleanup(func() { cancel(nil) })
	go func() {
		select {
		case <-l.launcherEnded():
			cancel(fmt.Errorf("the launcher of lab %s has ended", l.Dir))
		case <-ctx.Done():
		}
	}()
	return ctx
}

// observeLauncher returns a channel that is closed when the launcher listens no more. A launcher
// that answers late is only busy.
func (l *Lab) observeLauncher() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(longestInterval)
		defer tick.Stop()
		for range tick.C {
			if _, err := l.Pods(context.Background()); errors.Is(err, syscall.ECONNREFUSED) {
				return
			}
		}
	}()
	return ended
}

// Watch watches from a resourceVersion on, and restarts a watch that the API server ends early, as
// it may at any time.
func Watch(
	ctx context.Context, from string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error),
) (watch.Interface, error) {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{WatchFuncWithContext: begin})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return w, nil
}
