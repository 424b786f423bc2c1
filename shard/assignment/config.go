package assignment

import (
	"fmt"
	"time"
)

// Config holds the durations and limits of the assignment. DefaultConfig has the defaults; a zero
// field is a zero, not a default.
type Config struct {
	// HomeFor is how long the slots of a replica that leaves wait for its return; default 10 minutes.
	// Assign does not read it: the caller computes Slot.HomeUntil from it.
	HomeFor time.Duration
	// NotAcquiredAfter is how long a slot may be unowned with a live assigned replica before another
	// one is assigned; default 5 s.
	NotAcquiredAfter time.Duration
	// PassOverFor is how long a replica that did not take a slot is passed over for it; default 1
	// minute. Assign does not read it: the caller computes Slot.Passed from it.
	PassOverFor time.Duration
	// Window is the time for which JoinShare and LoadShare count; default 1 minute.
	Window time.Duration
	// JoinShare limits the moves for joining and load together in a Window: a share of all slots;
	// default 1: most of them belong elsewhere when several replicas join one, and each moves once.
	JoinShare float64
	// LoadShare limits the moves for load only in a Window: a share of all slots, and at least one;
	// default 1/16.
	LoadShare float64
	// RestFor is how long a slot that was moved for joining or load is not moved for load again;
	// default 5 minutes.
	RestFor time.Duration
	// UnevenAbove is the load relative to the mean above which a replica hands slots over; default
	// 1.10.
	UnevenAbove float64
	// EvenBelow is the load relative to the mean at which it stops doing so, and up to which the table
	// may choose a receiver; default 1.05. The distance to UnevenAbove is the hysteresis.
	EvenBelow float64
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		HomeFor:          10 * time.Minute,
		NotAcquiredAfter: 5 * time.Second,
		PassOverFor:      time.Minute,
		Window:           time.Minute,
		JoinShare:        1,
		LoadShare:        1.0 / 16,
		RestFor:          5 * time.Minute,
		UnevenAbove:      1.10,
		EvenBelow:        1.05,
	}
}

// Validate returns the first field that is invalid, with the values that are allowed.
func (c Config) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"HomeFor", c.HomeFor},
		{"NotAcquiredAfter", c.NotAcquiredAfter},
		{"PassOverFor", c.PassOverFor},
		{"Window", c.Window},
		{"RestFor", c.RestFor},
	} {
		if d.value <= 0 {
			return fmt.Errorf("assignment: %s: expected more than 0, got %v", d.name, d.value)
		}
	}
	if c.PassOverFor <= c.NotAcquiredAfter {
		return fmt.Errorf("assignment: PassOverFor: expected more than NotAcquiredAfter (%v), got %v; "+
			"otherwise a slot is assigned again to the replica that did not take it", c.NotAcquiredAfter, c.PassOverFor)
	}
	if !(c.LoadShare > 0 && c.LoadShare <= c.JoinShare && c.JoinShare <= 1) {
		return fmt.Errorf("assignment: expected 0 < LoadShare <= JoinShare <= 1, got %g and %g", c.LoadShare, c.JoinShare)
	}
	if !(c.EvenBelow >= 1 && c.UnevenAbove > c.EvenBelow) {
		return fmt.Errorf("assignment: expected 1 <= EvenBelow < UnevenAbove, got %g and %g", c.EvenBelow, c.UnevenAbove)
	}
	return nil
}
