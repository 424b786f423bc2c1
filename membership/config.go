package membership

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the durations of the protocol. They have to be the same in the whole fleet.
type Config struct {
	// RenewEvery is the time between two renewals of a session Lease, and between two reads of one
	// that the session waits for.
	RenewEvery time.Duration
	// RequestTimeout is how long a request about a Lease may take.
	RequestTimeout time.Duration
	// Fence is how long after the send time of its last acknowledged renewal a session may start
	// something.
	Fence time.Duration
	// ExitAfterFence is how long after the fence the process exits if something is still in flight.
	ExitAfterFence time.Duration
	// TakeOver is for how long a session Lease has to be unchanged, or gone, before its session may be
	// declared dead. It is also for how long a session Lease that was created proves nothing, and a
	// new slot Lease cannot be acquired.
	TakeOver time.Duration
	// ComeBack is the time from its send within which one of our own renewals has to be observed
	// through the watch. If it is not, what we observe of others is unreliable, and all timers
	// restart.
	ComeBack time.Duration
	// ClockDrift is by how much the clocks of two machines may drift apart, as a share: 0.05 is three
	// seconds a minute.
	ClockDrift float64
	// HandOverTimeout is how long a hand-over waits for what is in flight before it cancels it.
	HandOverTimeout time.Duration
	// UnfitHandOver replaces HandOverTimeout, if it is shorter, while the session reports that it is
	// unfit: what is in flight is then probably blocked. Together with BlindAfter before it the slots
	// are free well within 45 s.
	UnfitHandOver time.Duration
	// ExitAfterCancel is how long after that the process exits if something is still in flight.
	ExitAfterCancel time.Duration
	// WeighEvery is the shortest time between two renewals that report changed weights.
	WeighEvery time.Duration
	// LeaveWait is how long a session that leaves waits for the leader before it releases its slots by
	// itself.
	LeaveWait time.Duration
	// RebalanceEvery is the shortest time between two assignments; ten times that is the longest.
	RebalanceEvery time.Duration
	// OpenTimeout is how long the objects of an acquired slot may take to be known before the slot is
	// released. The session then leaves the slot alone for the same time, and twice as long after each
	// further failure.
	OpenTimeout time.Duration
	// BlindAfter is for how long the session's renewals may succeed without being observed through its
	// watch, or all of its lists may fail, before it releases its slots and the leadership.
	BlindAfter time.Duration
}

// DefaultConfig returns the default durations of the fleet.
func DefaultConfig() Config {
	return Config{
		RenewEvery: 2 * time.Second, RequestTimeout: 2 * time.Second, Fence: 9 * time.Second, ExitAfterFence: 2 * time.Second,
		TakeOver: 15 * time.Second, ComeBack: 4 * time.Second, ClockDrift: 0.05,
		HandOverTimeout: 30 * time.Second, UnfitHandOver: 10 * time.Second, ExitAfterCancel: 15 * time.Second,
		WeighEvery: 10 * time.Second, LeaveWait: 5 * time.Second,
		RebalanceEvery: time.Second, OpenTimeout: 30 * time.Second, BlindAfter: 15 * time.Second,
	}
}

// Validate returns all errors of the durations: one that is not positive, a fence that with the
// allowed drift could pass after the take-over, a take-over that could hit healthy sessions after
// the API server was unavailable.
func (c Config) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"RenewEvery", c.RenewEvery},
		{"RequestTimeout", c.RequestTimeout},
		{"Fence", c.Fence},
		{"ExitAfterFence", c.ExitAfterFence},
		{"TakeOver", c.TakeOver},
		{"ComeBack", c.ComeBack},
		{"HandOverTimeout", c.HandOverTimeout},
		{"UnfitHandOver", c.UnfitHandOver},
		{"ExitAfterCancel", c.ExitAfterCancel},
		{"WeighEvery", c.WeighEvery},
		{"LeaveWait", c.LeaveWait},
		{"RebalanceEvery", c.RebalanceEvery},
		{"OpenTimeout", c.OpenTimeout},
		{"BlindAfter", c.BlindAfter},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s: expected more than 0, got %v", d.name, d.value))
		}
	}
	if c.ClockDrift < 0 || c.ClockDrift >= 1 {
		errs = append(errs, fmt.Errorf("ClockDrift: expected a share from 0 to below 1, got %v", c.ClockDrift))
	}
	if drift := time.Duration(c.ClockDrift * float64(c.TakeOver)); c.Fence+drift >= c.TakeOver {
		errs = append(errs, fmt.Errorf("TakeOver: expected more than Fence (%v) and the drift of clocks (%v) together, got %v",
			c.Fence, drift, c.TakeOver))
	}
	if least := 2*(c.RenewEvery+c.RequestTimeout) + c.ComeBack; c.TakeOver <= least {
		errs = append(errs,
			fmt.Errorf("TakeOver: expected more than 2 × (RenewEvery + RequestTimeout) + ComeBack = %v, got %v", least, c.TakeOver))
	}
	if c.BlindAfter <= c.ComeBack {
		errs = append(errs, fmt.Errorf("BlindAfter: expected more than ComeBack (%v), got %v", c.ComeBack, c.BlindAfter))
	}
	if least := 2 * (c.RenewEvery + c.RequestTimeout); c.Fence <= least {
		errs = append(errs,
			fmt.Errorf("Fence: expected more than 2 × (RenewEvery + RequestTimeout) = %v, so that one lost renewal suspends no session, got %v",
				least, c.Fence))
	}
	return errors.Join(errs...)
}
