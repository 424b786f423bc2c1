package decide

import "time"

// slack is how much later than needed the sweep begins that confirms: each sweep before it writes
// ages anew, without parts of seconds.
const slack = 10 * time.Second

// Due returns after which time a sweep can confirm the oldest of the surplus VMs that are younger
// than age, because their Machines wait for that; 0 where there are none. before is the record as
// the last sweep found it, and after as that has written it. A VM that could be confirmed in that
// sweep is not due again: what has prevented its deletion is left to usual sweeps. One that became
// old enough during it was not confirmed, and is.
func Due(suspects []Suspect, before, after Record, age time.Duration) (soonest time.Duration) {
	for _, s := range suspects {
		if !s.Surplus || before.Suspects[s.Key()].Duration() >= age {
			continue
		}
		if left := max(age-after.Suspects[s.Key()].Duration(), 0) + slack; soonest == 0 || left < soonest {
			soonest = left
		}
	}
	return soonest
}

// Spaced returns after which time a sweep of a namespace begins that is wanted after some time, in
// addition to the usual ones. last is the time since the last such sweep, negative without one: a
// client or a cloud that gives reasons without end causes no sweeps without end.
func Spaced(wanted, last, spacing time.Duration) time.Duration {
	if last < 0 {
		return wanted
	}
	return max(wanted, spacing-last)
}
