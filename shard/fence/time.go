package fence

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// Time reads both clocks of the machine: the time since the process started, and the wall clock.
type Time struct {
	clock.WithTicker

	// Ahead returns by how much the clock of the control cluster is ahead of the wall clock; nil means
	// that there is no difference. It is set before the first Moment that is written.
	Ahead func() time.Duration

	start time.Time
}

// NewTime returns a Time whose monotonic clock starts now.
func NewTime(c clock.WithTicker) *Time { return &Time{WithTicker: c, start: c.Now()} }

// Moment returns the current time on both clocks.
func (t *Time) Moment() membership.Moment {
	now := t.Now()
	moment := membership.Moment{Monotonic: now.Sub(t.start), Wall: now.Round(0)}
	if t.Ahead != nil {
		moment.Ahead = t.Ahead()
	}
	return moment
}
