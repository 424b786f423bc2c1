package breaker

import (
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

const (
	// Failures is how many different machines have to fail in a row.
	Failures = 5
	// FirstPause is the time from the opening to the first probe. Each probe that fails doubles it. It
	// is the first wait of one machine between its attempts: an account gets probes as often as if it
	// had one machine.
	FirstPause = 5 * time.Second
	// LongestPause is the longest time between two probes, unless the cloud requests a longer one.
	LongestPause = 3 * time.Minute
	// forgetAfter is after which time without calls a Breaker is of no use any more: longer than the
	// waits of machines between attempts.
	forgetAfter = 10 * time.Minute
)

// mostClasses is how many classes are remembered that have failed. With more of them, the others
// wait as well.
const mostClasses = 16

// Caller names the object that a call is sent for.
type Caller struct {
	// Machine and Class identify the machine, and the version of its class: a class that was corrected
	// is another one.
	Machine, Class string
}

// Outcome is how a call has ended. The zero value is an answer of the cloud.
type Outcome struct {
	Code driver.Code
	// RetryAfter is the wait that the cloud requests; 0 for none.
	RetryAfter time.Duration
	// Pending is that of driver.Error.
	Pending bool
	// Ended reports whether the caller has ended the call, which shows nothing about the cloud.
	Ended bool
}

// evidence classifies what an outcome shows about an account.
type evidence int

const (
	nothing evidence = iota
	works
	refused
)

// shows returns what an outcome shows. Codes with which a cloud may answer for the machine, its
// name, its zone or its type show that the account works; those that a driver may return without a
// call show nothing.
func (o Outcome) shows() evidence {
	if o.Pending || o.Ended {
		return nothing
	}
	switch o.Code {
	case driver.OK, driver.NotFound, driver.AlreadyExists, driver.OutOfRange, driver.ResourceExhausted, driver.Uninitialized:
		return works
	case driver.Unauthenticated, driver.PermissionDenied, driver.Unavailable, driver.DeadlineExceeded:
		return refused
	case driver.InvalidArgument, driver.FailedPrecondition, driver.Unimplemented, driver.Aborted, driver.Canceled,
		driver.Internal, driver.Unknown, driver.DataLoss:
		return nothing
	}
	return nothing
}

// IsEvidence reports whether an outcome shows whether the account works.
func (o Outcome) IsEvidence() bool { return o.shows() != nothing }

// CountsAgainst reports whether an outcome is a failure that concerns the account.
func (o Outcome) CountsAgainst() bool { return o.shows() == refused }

// Breaker is the circuit breaker of one account and kind of call. The zero value is closed. It is
// not safe for concurrent use.
type Breaker struct {
	failed  []string      // machines since the last answer, at most Failures
	classes []string      // of the failures since the last answer
	pause   time.Duration // 0 while it is closed
	until   time.Time     // the end of the pause
	last    time.Time     // of the failures
	code    driver.Code   // of the last failure
	probe   int           // the call that is the probe; 0 for none
	probes  int           // so far
}

// Answer is whether a call may be sent.
type Answer struct {
	// Allowed reports whether it may. If so, End is called with Probe when it has ended.
	Allowed bool
	// Probe is the number of the probe; 0 for a call that is none.
	Probe int
	// Again is when to ask again, if the call may not be sent.
	Again time.Time
}

// Ask returns whether a call may be sent now.
func (b *Breaker) Ask(by Caller, now time.Time) Answer {
	switch {
	case !b.IsOpen():
		return Answer{Allowed: true}
	case b.until.After(now) && b.hasFailed(by.Class):
		return Answer{Again: b.until}
	case b.probe != 0: // if it fails now the next one is sent then
		return Answer{Again: now.Add(b.nextPause())}
	}
	b.probes++
	b.probe = b.probes
	return Answer{Allowed: true, Probe: b.probe}
}

// Change describes what the end of a call has changed.
type Change int

// The changes.
const (
	Unchanged Change = iota
	Opened
	Closed
)

// End records how a call has ended that Ask has allowed; probe is that of the Answer.
func (b *Breaker) End(by Caller, probe int, o Outcome, now time.Time) Change {
	isProbe := probe != 0 && probe == b.probe
	if isProbe {
		b.probe = 0
	}
	switch o.shows() {
	case nothing:
	case works:
		wasOpen := b.IsOpen()
		*b = Breaker{probes: b.probes}
		if wasOpen {
			return Closed
		}
	case refused:
		return b.fail(by, isProbe, o, now)
	}
	return Unchanged
}

func (b *Breaker) fail(by Caller, isProbe bool, o Outcome, now time.Time) Change {
	b.last, b.code = now, o.Code
	if len(b.failed) < Failures && !slices.Contains(b.failed, by.Machine) {
		b.failed = append(b.failed, by.Machine)
	}
	if len(b.classes) < mostClasses && !b.hasFailed(by.Class) {
		b.classes = append(b.classes, by.Class)
	}
	wasOpen := b.IsOpen()
	switch {
	case wasOpen && (!isProbe || b.until.After(now)), len(b.failed) < Failures:
		return Unchanged
	case wasOpen:
		b.pause = b.nextPause()
	default:
		b.pause = FirstPause
	}
	b.until = now.Add(max(b.pause, o.RetryAfter))
	if wasOpen {
		return Unchanged
	}
	return Opened
}

// IsOpen reports whether calls are held, but for probes.
func (b *Breaker) IsOpen() bool { return b.pause > 0 }

// Code returns the code of the last failure.
func (b *Breaker) Code() driver.Code { return b.code }

// IsOver reports whether the state is of no use any more: nothing has failed, or no call was sent
// for long.
func (b *Breaker) IsOver(now time.Time) bool {
	recent := b.last
	if b.until.After(recent) {
		recent = b.until
	}
	return b.probe == 0 && now.Sub(recent) > forgetAfter
}

// hasFailed reports whether a class has failed since the last answer, or may have.
func (b *Breaker) hasFailed(class string) bool {
	return len(b.classes) >= mostClasses || slices.Contains(b.classes, class)
}

func (b *Breaker) nextPause() time.Duration { return min(2*b.pause, LongestPause) }
