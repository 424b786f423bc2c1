package runner

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Rounds calls a function when the session begins to lead, and then once in each period.
type Rounds struct {
	clock  clock.WithTicker
	period time.Duration
	led    chan struct{}
}

// NewRounds returns Rounds, which call from Run on.
func NewRounds(c clock.WithTicker, period time.Duration) *Rounds {
	return &Rounds{clock: c, period: period, led: make(chan struct{}, 1)}
}

// Begin starts a round soon, because the session begins to lead. It returns at once.
func (r *Rounds) Begin() {
	select {
	case r.led <- struct{}{}:
	default:
	}
}

// Run runs the runner that works on the rounds, and calls round, until ctx ends. first reports
// whether the session has begun to lead since the last call.
func (r *Rounds) Run(ctx context.Context, work *Runner[string], round func(first bool)) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { work.Run(ctx) })
	ticker := r.clock.NewTicker(r.period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.led:
			ticker.Stop()
			ticker = r.clock.NewTicker(r.period)
			round(true)
		case <-ticker.C():
			round(false)
		}
	}
}
