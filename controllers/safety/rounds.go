package safety

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// rounds calls a function when the session begins to lead, and then once in each period.
type rounds struct {
	clock  clock.WithTicker
	period time.Duration
	led    chan struct{}
}

func newRounds(c clock.WithTicker, period time.Duration) *rounds {
	return &rounds{clock: c, period: period, led: make(chan struct{}, 1)}
}

// begin starts a round soon, because the session begins to lead. It returns at once.
func (r *rounds) begin() {
	select {
	case r.led <- struct{}{}:
	default:
	}
}

// run calls round until ctx ends. first reports whether the session has begun to lead since the last call.
func (r *rounds) run(ctx context.Context, round func(first bool)) {
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
