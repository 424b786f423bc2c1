package replica

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// pauseState delays the requests, answers, watch events and timers of a process while it is paused.
type pauseState struct {
	dead <-chan struct{}

	mu      sync.Mutex
	resumed chan struct{} // closed when the process continues; nil while it runs
}

// pause begins a pause, unless there is one.
func (s *pauseState) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed == nil {
		s.resumed = make(chan struct{})
	}
}

// resume ends the pause, if there is one.
func (s *pauseState) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed != nil {
		close(s.resumed)
		s.resumed = nil
	}
}

// untilResumed returns a channel that is closed at the end of the pause, or nil when the process
// runs.
func (s *pauseState) untilResumed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumed
}

// awaitRunning waits for the end of the pause, or of the process. It reports whether there was a
// pause.
func (s *pauseState) awaitRunning() (paused bool) {
	for {
		resumed := s.untilResumed()
		if resumed == nil {
			return paused
		}
		paused = true
		select {
		case <-resumed:
		case <-s.dead:
			return paused
		}
	}
}

// skewedClock is a clock that differs from those of the API servers.
type skewedClock struct {
	clock.RealClock

	by time.Duration
}

// Now returns its time.
func (c skewedClock) Now() time.Time { return c.RealClock.Now().Add(c.by) }

// Since returns how long ago one of its times was.
func (c skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// pausableClock is the clock of a process: a timer that expires during a pause fires at its end.
type pausableClock struct {
	skewedClock
	*pauseState
}

var _ clock.WithTicker = pausableClock{}

// NewTimer returns a timer that fires once.
func (c pausableClock) NewTimer(d time.Duration) clock.Timer { return c.timer(d, 0) }

// NewTicker returns a timer that fires repeatedly.
func (c pausableClock) NewTicker(d time.Duration) clock.Ticker { return tickerOf{c.timer(d, d)} }

// After returns the channel of a timer that fires once.
func (c pausableClock) After(d time.Duration) <-chan time.Time { return c.timer(d, 0).fired }

func (c pausableClock) timer(d, period time.Duration) *pausableTimer {
	t := &pausableTimer{process: c.pauseState, period: period, fired: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

// pausableTimer is a timer, or a ticker when it has a period.
type pausableTimer struct {
	process *pauseState
	period  time.Duration
	fired   chan time.Time

	mu     sync.Mutex
	timer  *time.Timer
	active *struct{ _ byte } // the current setting of the timer; nil when it was stopped or has fired
}

// C returns the channel on which the timer fires.
func (t *pausableTimer) C() <-chan time.Time { return t.fired }

// Stop stops the timer, and reports whether it was active.
func (t *pausableTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop()
}

// Reset has the timer fire after d, and reports whether it was active.
func (t *pausableTimer) Reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.stop()
	t.set(d)
	return was
}

// stop stops the timer and empties its channel; t.mu is held.
func (t *pausableTimer) stop() (was bool) {
	if t.timer != nil {
		t.timer.Stop()
	}
	was = t.active != nil
	t.active = nil
	select {
	case <-t.fired:
	default:
	}
	return was
}

// set starts the timer; t.mu is held.
func (t *pausableTimer) set(d time.Duration) {
	setting := &struct{ _ byte }{}
	t.active = setting
	t.timer = time.AfterFunc(d, func() {
		t.process.awaitRunning()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.active != setting {
			return
		}
		t.active = nil
		select {
		case t.fired <- time.Now():
		default:
		}
		if t.period > 0 {
			t.set(t.period)
		}
	})
}

// tickerOf is a timer as a ticker.
type tickerOf struct{ *pausableTimer }

// Stop stops the ticker.
func (t tickerOf) Stop() { t.pausableTimer.Stop() }
