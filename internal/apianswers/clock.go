package apianswers

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// ClockTolerance is by how much two clocks may differ without a correction. Clocks that are
	// synchronized differ by less.
	ClockTolerance = 5 * time.Second
	// settle is how long no answer may agree with the Clock before it is corrected again. While some
	// do, another API server of the cluster has another clock, and times must not change with the
	// server that happens to answer.
	settle = 30 * time.Second
	// ClockJump is by how much a correction of a known Clock moves it forward at least to be reported
	// by LastJump.
	ClockJump = time.Minute
)

// Clock is the clock of a cluster. Create it with NewClock; it is safe for concurrent use. Its
// timers are those of the process.
type Clock struct {
	clock.WithTickerAndDelayedExecution

	server string
	start  time.Time                                   // by the clock of the process
	slept  func(from, to time.Time) (of time.Duration) // slept, or what a test sets

	mu        sync.Mutex
	base      time.Time // what this clock shows at start
	known     bool      // an answer has shown the time
	doubted   time.Time // by the clock of the process: when the first answer arrived since the last one that agreed; zero while they agree
	agreed    time.Time // by the clock of the process: when the last answer arrived that agreed, or that has set this clock
	corrected time.Time // by the clock of the process: when this clock was corrected last, after the first answer
	jumped    time.Time // by the clock of the process: when the last jump was noticed
	by        time.Duration
}

// NewClock returns a clock that is that of the process until the first answer of an API server.
// server names the cluster in logs.
func NewClock(own clock.WithTickerAndDelayedExecution, server string) *Clock {
	start := own.Now()
	return &Clock{WithTickerAndDelayedExecution: own, server: server, start: start, slept: slept, base: start.Round(0)}
}

// Own returns the clock of the process below a Clock, and any other clock as it is. Durations
// within the process are its: what waits until a time of a Clock waits longer by as much as the
// Clock is set back meanwhile.
func Own[C clock.PassiveClock](c C) C {
	if of, is := any(c).(*Clock); is {
		if own, is := any(of.WithTickerAndDelayedExecution).(C); is {
			return own
		}
	}
	return c
}

// Now returns the time of the cluster.
func (c *Clock) Now() time.Time { return c.At(c.WithTickerAndDelayedExecution.Now()) }

// Since returns how long ago a time of the cluster was.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// At returns the time of the cluster at a time that the clock of the process has shown. That of the
// zero Time is the zero Time.
func (c *Clock) At(own time.Time) time.Time {
	if own.IsZero() {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(own)
}

// at is At; c.mu is held.
func (c *Clock) at(own time.Time) time.Time { return c.base.Add(own.Sub(c.start)) }

// Ahead returns by how much the clock of the cluster is ahead of the wall clock of the process, as
// far as answers have shown.
func (c *Clock) Ahead() time.Duration {
	now := c.WithTickerAndDelayedExecution.Now()
	return c.At(now).Sub(now.Round(0))
}

// AheadOf returns by how much this clock is ahead of that of another cluster, in the same process;
// 0 while either is not known, or is to be corrected as the other one was, or they differ by no
// more than ClockTolerance.
func (c *Clock) AheadOf(other *Clock) time.Duration {
	now := c.WithTickerAndDelayedExecution.Now()
	ahead := c.At(now).Sub(other.At(now))
	one, two := c.standing(now), other.standing(now)
	if !one.isComparable(two) || !two.isComparable(one) || ahead.Abs() <= ClockTolerance {
		return 0
	}
	return ahead
}

// standing is how much a Clock is to be trusted.
type standing struct {
	known, doubted    bool
	agreed, corrected time.Time
}

func (c *Clock) standing(now time.Time) standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return standing{c.known, !c.doubted.IsZero() || c.slept(c.agreed, now) > ClockTolerance, c.agreed, c.corrected}
}

// isComparable reports whether the difference to another Clock is that of their servers. What lets
// answers disagree, such as a suspension of this process, can concern both, of which the other may
// be corrected already. Until then both are wrong by the same.
func (s standing) isComparable(other standing) bool {
	return s.known && (!s.doubted || other.corrected.Before(s.agreed))
}

// LastJump returns when, by the clock of the process, this clock was last corrected forward by
// ClockJump or more after its first answer, and by how much; both are zero if it never was. To this
// clock all times that were written before are by so much older than they are. After a suspension
// of the machine they are not; that the API server's machine was suspended, too, or set with this
// one, looks the same.
func (c *Clock) LastJump() (at time.Time, by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jumped, c.by
}

// Wrap returns a transport that sets the clock by the answers of the cluster. Put it above what
// rejects answers that no API server has written.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{clock: c, next: next}
}

// transport is the http.RoundTripper.
type transport struct {
	clock *Clock
	next  http.RoundTripper
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request. Errors: those of the transport below.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := t.clock.WithTickerAndDelayedExecution.Now()
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is the transport's
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		if ahead, isSet := t.clock.answered(sent, t.clock.WithTickerAndDelayedExecution.Now(), date); isSet {
			klog.FromContext(r.Context()).Info("Clock of the API server differs from that of this process, and is used now",
				"server", t.clock.server, "serverAhead", ahead.String())
		}
	}
	return answer, nil
}

// answered sets the clock by an answer that the server has dated between two times of the process.
// isSet reports whether that was necessary, and ahead is Ahead then.
func (c *Clock) answered(sent, received, date time.Time) (ahead time.Duration, isSet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The server has written its time, in full seconds, after the request was sent and before the
	// answer was received.
	least, most := date.Sub(c.at(received)), date.Add(time.Second).Sub(c.at(sent))
	isFirst, hasSlept := !c.known, c.known && c.slept(c.agreed, received) > ClockTolerance
	c.known = true
	switch {
	case least <= ClockTolerance && most >= -ClockTolerance:
		c.doubted, c.agreed = time.Time{}, received
		return 0, false
	case c.doubted.IsZero():
		c.doubted = received
	}
	if !isFirst && !hasSlept && received.Sub(c.doubted) < settle {
		return 0, false
	}
	wrong := least
	if most < 0 {
		wrong = most
	}
	if !isFirst {
		c.corrected = received
		if wrong >= ClockJump {
			c.jumped, c.by = received, wrong
		}
	}
	c.base, c.doubted, c.agreed = c.base.Add(wrong), time.Time{}, received
	return c.at(received).Sub(received.Round(0)).Round(time.Second), true
}

// slept returns by how much more the wall clock has advanced between two times of the process than
// the monotonic one, which stands still while the machine is suspended. Where only the wall clock
// was set, the answers still agree with the monotonic one.
func slept(from, to time.Time) time.Duration { return to.Round(0).Sub(from.Round(0)) - to.Sub(from) }
