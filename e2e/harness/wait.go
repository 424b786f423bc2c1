package harness

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// pollInterval of Eventually. Short, because benchmarks measure with it, too.
const pollInterval = 50 * time.Millisecond

// Eventually calls check repeatedly until it returns nil. When ctx ends first, the error contains the last one of check.
func Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	return EventuallyEvery(ctx, pollInterval, what, check)
}

// EventuallyEvery is Eventually with a longer interval, for example for many tests at a time on one lab.
func EventuallyEvery(ctx context.Context, interval time.Duration, what string, check func(context.Context) error) error {
	return eventually(ctx, interval, interval, what, check)
}

// The interval of EventuallyLasting grows with the time waited: it is that divided by waitedPerInterval, and at most longestInterval.
const (
	waitedPerInterval = 10
	longestInterval   = time.Second
)

// EventuallyLasting is EventuallyEvery for a state that does not end by itself. The interval is only that of the first checks: waits of
// minutes, many at a time, would else be much of the work of the API servers.
func EventuallyLasting(ctx context.Context, interval time.Duration, what string, check func(context.Context) error) error {
	return eventually(ctx, interval, longestInterval, what, check)
}

func eventually(ctx context.Context, interval, longest time.Duration, what string, check func(context.Context) error) error {
	began := time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last error: %w", what, ctx.Err(), last)
		case <-tick.C:
			if grown := min(time.Since(began)/waitedPerInterval, longest); grown > interval {
				tick.Reset(grown)
			}
		}
	}
}

// Watch watches from a resourceVersion on, and restarts a watch that the API server ends early, as it may at any time.
func Watch(ctx context.Context, from string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{WatchFuncWithContext: begin})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return w, nil
}
