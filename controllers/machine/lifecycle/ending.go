package lifecycle

import "time"

// Pauses between calls that ask whether a VM has ended: a quarter of the time that it has taken so
// far, between these two. So one that ends at once is seen at once, one that takes a minute is
// asked for some twenty times, and none is seen more than 10 s late.
const (
	shortestEndingPause = 250 * time.Millisecond
	longestEndingPause  = 10 * time.Second
)

// askAgain is when the cloud is asked again about a VM that is ending.
func (vm VMFact) askAgain() time.Time {
	pause := vm.AskedAt.Sub(vm.EndingSince) / 4
	return vm.AskedAt.Add(min(max(pause, shortestEndingPause), longestEndingPause))
}
