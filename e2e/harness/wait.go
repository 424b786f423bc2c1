package harness

import (
	"context"
	"fmt"
	"time"
)

// pollInterval of Eventually. Short, because benchmarks measure with it, too.
const pollInterval = 50 * time.Millisecond

// Eventually asks again and again until check returns nil. When ctx ends first, the last error says what was missing.
func Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	return EventuallyEvery(ctx, pollInterval, what, check)
}

// EventuallyEvery is Eventually for those who are not in a hurry, such as many tests at a time on one lab.
func EventuallyEvery(ctx context.Context, interval time.Duration, what string, check func(context.Context) error) error {
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
			return fmt.Errorf("wait until %s: %w; at last: %w", what, ctx.Err(), last)
		case <-tick.C:
		}
	}
}
