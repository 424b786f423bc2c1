package bynamespace

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// outages records the last time for which a target was not available. Nothing that depends on it
// could make progress, as while its API server is away, which its check records.
type outages struct {
	from   time.Time // when it was last available, or opened; zero while it is available
	failed bool      // there was a problem since, and it is not only being opened
	last   reach.Fact
}

// note records the problem at a time. What has lasted for less than a time is no outage.
func (o *outages) note(is problem, now time.Time, atLeast time.Duration) {
	switch {
	case is != none:
		if o.from.IsZero() {
			o.from = now
		}
		o.failed = o.failed || is != opening
	case !o.from.IsZero():
		if o.failed && now.Sub(o.from) >= atLeast {
			o.last = reach.Fact{From: o.from, Back: now}
		}
		o.from, o.failed = time.Time{}, false
	}
}

// Outage returns the last time for which the target of a namespace was not available, by the clock
// of this process, as an outage; none while it is not open.
func (t *Targets) Outage(namespace string) reach.Fact {
	t.mu.Lock()
	o := t.all[namespace]
	t.mu.Unlock()
	if o == nil {
		return reach.Fact{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.outages.last
}
