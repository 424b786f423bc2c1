package leases

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// watchEvery is the time between two checks of the watchdog.
const watchEvery = 250 * time.Millisecond

// Watchdog ends the process if what should have ended at the fence has not. It is the last resort,
// for a process in which nothing else responds any more, and so it depends on nothing else.
type Watchdog struct {
	Clock clock.WithTicker
	// Now returns the moment on both clocks.
	Now func() membership.Moment
	// Fence returns the session's fence; the zero Moment while it has none.
	Fence func() membership.Moment
	// Busy counts what is in flight. It may hang: that counts as busy.
	Busy func() int
	// Beat returns when the loop has last responded.
	Beat func() membership.Moment
	// After is how long after the fence something may still be in flight.
	After time.Duration
	// Silence is for how long the loop may fail to respond.
	Silence time.Duration
	// Exit ends the process at once.
	Exit func(reason string)
}

// Run watches until ctx ends.
func (w *Watchdog) Run(ctx context.Context) {
	ticker := w.Clock.NewTicker(watchEvery)
	defer ticker.Stop()
	var last membership.Moment // the last fence that was set
	late, silent := 0, 0       // consecutive checks that found something in flight after it, and the loop without a response
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := w.Now()
		if fence := w.Fence(); !fence.IsZero() {
			last = fence
		}
		// A process that was stopped notices the elapsed time when it is resumed: what it cancels then
		// has until the next check.
		late = count(late, !last.IsZero() && now.Reached(last.Add(w.After)) && w.busy(ctx) > 0)
		silent = count(silent, now.Since(w.Beat()) > w.Silence)
		switch {
		case late > 1:
			w.Exit(fmt.Sprintf("the fence passed more than %s ago and work is still in flight", w.After))
			return
		case silent > 1:
			w.Exit(fmt.Sprintf("the loop of the session has not answered for %s", w.Silence))
			return
		}
	}
}

func count(n int, again bool) int {
	if again {
		return n + 1
	}
	return 0
}

// busy counts what is in flight, and waits for the count until the next check at the latest.
func (w *Watchdog) busy(ctx context.Context) int {
	answer := make(chan int, 1)
	go func() { answer <- w.Busy() }()
	timeout := w.Clock.NewTimer(watchEvery)
	defer timeout.Stop()
	select {
	case n := <-answer:
		return n
	case <-timeout.C():
		return 1
	case <-ctx.Done():
		return 0
	}
}
