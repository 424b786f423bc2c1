package session

import (
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// firstScrapes is after what time a replica counts what it saw of the time before: increase() of
// Prometheus does not show what a counter has when it is first scraped.
const firstScrapes = time.Minute

// service counts for how long slots were not worked on: those without a live holder, and those that
// this session holds.
type service struct {
	metrics *Metrics
	holders *holders
	roots   func(slot int) int
	begun   member.Moment
	early   float64 // slot-seconds without a live holder that are to be counted after firstScrapes

	last      member.Moment
	idle      int           // slots that this session has held since last and has not worked on
	suspended member.Moment // since when; zero: it is not
}

// observe counts slots without a live holder.
func (s *service) observe(now member.Moment, observing bool) {
	s.early += s.holders.take(now, observing)
	if now.Since(s.begun) >= firstScrapes {
		s.metrics.unownedSeconds.Add(s.early)
		s.early = 0
	}
	s.metrics.unowned.Set(float64(s.holders.unowned(now)))
	s.holders.prune(now)
}

// opened counts, for the roots of a slot that has opened here, the time since a live session held
// it last.
func (s *service) opened(slot int, now member.Moment) {
	s.metrics.rootSeconds.Add(max(0, now.Since(s.holders.slots[slot].gap.since).Seconds()) * float64(s.roots(slot)))
}

// hold counts the slots that this session holds, idle of which it does not work on from now on. A
// time for which it is suspended counts when it ends: until then others may have taken the slots
// over, and count them.
func (s *service) hold(now member.Moment, held map[int]*opening, idle int, suspended bool) {
	switch {
	case suspended && s.suspended.IsZero():
		s.suspended = now
	case !suspended && !s.suspended.IsZero():
		missed := now.Since(s.suspended).Seconds()
		s.suspended = member.Moment{}
		for slot := range held {
			s.metrics.unopenedSeconds.Add(missed)
			s.metrics.rootSeconds.Add(missed * float64(s.roots(slot)))
		}
	case !suspended:
		s.metrics.unopenedSeconds.Add(now.Since(s.last).Seconds() * float64(s.idle))
	}
	s.last, s.idle = now, idle
}
