package membership

import "time"

// Moment is an instant on both clocks of this machine. The monotonic clock measures durations, but
// stands still while the machine is suspended; the wall clock continues, but may be set. The zero
// Moment is before all others.
type Moment struct {
	// Monotonic is the time since some fixed instant in this process's life.
	Monotonic time.Duration
	// Wall is the time of the wall clock.
	Wall time.Time
	// Ahead is by how much the clock of the control cluster is ahead of Wall. No permission depends on
	// it.
	Ahead time.Duration
}

// Cluster returns the time of the control cluster, which replicas share, and write for each other.
func (m Moment) Cluster() time.Time { return m.Wall.Add(m.Ahead) }

// Add returns the moment d later.
func (m Moment) Add(d time.Duration) Moment {
	return Moment{Monotonic: m.Monotonic + d, Wall: m.Wall.Add(d), Ahead: m.Ahead}
}

// Since returns how long after earlier m is, on the monotonic clock.
func (m Moment) Since(earlier Moment) time.Duration { return m.Monotonic - earlier.Monotonic }

// Reached reports whether either clock has reached the deadline.
func (m Moment) Reached(deadline Moment) bool {
	return m.Monotonic >= deadline.Monotonic || !m.Wall.Before(deadline.Wall)
}

// IsZero reports whether the moment was never set.
func (m Moment) IsZero() bool { return m == Moment{} }

// Earliest returns the earliest of the moments that are set, on the monotonic clock; the zero
// Moment if none is.
func Earliest(moments ...Moment) (earliest Moment) {
	for _, m := range moments {
		if !m.IsZero() && (earliest.IsZero() || m.Monotonic < earliest.Monotonic) {
			earliest = m
		}
	}
	return earliest
}
