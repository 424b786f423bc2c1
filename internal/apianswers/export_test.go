package apianswers

import "time"

// SetSlept sets by how much more the wall clock has advanced than the monotonic one: a bubble of
// synctest has one clock only.
func (c *Clock) SetSlept(of time.Duration) {
	c.slept = func(time.Time, time.Time) time.Duration { return of }
}
