package disruption

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Thresholds are the limits at which a circuit breaker opens and closes.
type Thresholds struct {
	// NotReady and Percent: a circuit breaker opens where at least NotReady machines are not Ready,
	// and they are more than Percent of all. With a Percent of 100 it never opens. NotReady matters in
	// small scopes only: with 50 %, in those of fewer than twice as many machines.
	NotReady, Percent int
	// ClosePercent and CloseAfter: it closes when less than ClosePercent have not been Ready for
	// CloseAfter.
	ClosePercent int
	CloseAfter   time.Duration
	// TryAfter: where a circuit breaker stays open, a machine that should have been replaced this long
	// ago may be replaced if no other machine of its root is. So what is lost permanently is replaced
	// in the end, one machine after the other. 0 means never.
	TryAfter time.Duration
}

// DefaultThresholds returns the thresholds that apply without flags. One machine that is not Ready
// is no evidence about others; two of three are, in clusters of the size that most have.
// testdata/landscape.txt shows what other values cost there.
func DefaultThresholds() Thresholds {
	return Thresholds{NotReady: 2, Percent: 50, ClosePercent: 30, CloseAfter: 5 * time.Minute, TryAfter: 2 * time.Hour}
}

// Validate returns all errors of the thresholds.
func (t Thresholds) Validate() error {
	var errs []error
	if t.NotReady < 1 {
		errs = append(errs, fmt.Errorf("the number of machines that are not Ready: expected at least 1, got %d", t.NotReady))
	}
	if t.Percent < 1 || t.Percent > 100 {
		errs = append(errs, fmt.Errorf("the percentage that opens a circuit breaker: expected 1 to 100, got %d", t.Percent))
	}
	if t.ClosePercent < 1 || t.ClosePercent > t.Percent {
		errs = append(errs, fmt.Errorf("the percentage that closes a circuit breaker: expected 1 to the one that opens it (%d), "+
			"so that it does not open again at once, got %d", t.Percent, t.ClosePercent))
	}
	if t.CloseAfter < 0 {
		errs = append(errs, fmt.Errorf("the time after which a circuit breaker closes: expected at least 0, got %v", t.CloseAfter))
	}
	if t.TryAfter < 0 {
		errs = append(errs, fmt.Errorf("the time after which one machine is replaced nevertheless: expected at least 0, got %v", t.TryAfter))
	}
	return errors.Join(errs...)
}

// tooMany reports whether bad of all machines are too many.
func (t Thresholds) tooMany(bad, all int) bool { return bad >= t.NotReady && 100*bad > t.Percent*all }

// mayTry reports whether a machine that should have been replaced at a time may be, although the
// circuit breaker is open.
func (t Thresholds) mayTry(due, now time.Time) bool {
	return t.TryAfter > 0 && !now.Before(due.Add(t.TryAfter))
}

// few reports whether few enough machines of a count are not Ready. Without machines, none are.
func (t Thresholds) few(n Count) bool {
	return n.NotReady == 0 || 100*n.NotReady < t.ClosePercent*(n.Ready+n.NotReady)
}

// trips reports whether the circuit breaker of a scope must open, and where: in all namespaces or
// in one.
func (t Thresholds) trips(scope Scope, tally rankedTally) (where Scope, isOpen bool) {
	for _, namespace := range []string{"", tally.worst("")} {
		if n := tally.evidence(namespace); t.tooMany(n.NotReady, n.Ready+n.NotReady) {
			return scope.in(namespace), true
		}
	}
	return scope, false
}

// Breakers are the open circuit breakers: the scopes in which no machine is replaced for its
// health, as one process knows them. The zero value has no counts yet, and allows no disruption.
type Breakers struct {
	complete bool
	open     map[Scope]*breaker
}

// breaker is an open circuit breaker.
type breaker struct {
	count Count     // the last count
	well  time.Time // since when few enough machines are not Ready; zero: too many are
}

// step updates the circuit breakers with the tallies of all slots. It returns when to call it again
// without a new count; zero: not at all. now must have been read from one clock, this replica's:
// other clocks do not count.
//
// A circuit breaker opens in all namespaces where too many machines are not Ready without those of
// any one namespace. Otherwise it opens in the namespace with most of them, if too many are not
// Ready because of these.
func (b *Breakers) step(now time.Time, t Thresholds, total map[Scope]rankedTally, complete bool) (again time.Time) {
	b.complete = complete
	for scope, tally := range total {
		if where, isOpen := t.trips(scope, tally); isOpen {
			b.trip(where)
		}
	}
	for scope, is := range b.open {
		tally := total[scope.in("")]
		is.count = tally.Count
		switch {
		case !complete || !t.few(tally.evidence(scope.Namespace)): // machines that were not counted may be not Ready
			is.well = time.Time{}
			continue
		case is.well.IsZero():
			is.well = now
		}
		end := is.well.Add(t.CloseAfter)
		if !end.After(now) {
			delete(b.open, scope)
		} else if again.IsZero() || end.Before(again) {
			again = end
		}
	}
	return again
}

// Restore records that, according to a root of a namespace, the circuit breaker of a scope was
// opened by the previous holder. It is open in that namespace only, since a root states nothing
// about other namespaces, until this replica has seen few enough machines that are not Ready for
// the required time: the start of that time is unknown. Restore reports whether the breaker is new.
func (b *Breakers) Restore(scope Scope, namespace string) (isNew bool) {
	scope = scope.in(namespace)
	if b.open[scope] != nil {
		return false
	}
	b.trip(scope)
	return true
}

// trip opens the circuit breaker of a scope. Of one that is open it begins anew to time since when
// few enough machines are not Ready.
func (b *Breakers) trip(scope Scope) {
	if b.open == nil {
		b.open = map[Scope]*breaker{}
	}
	b.open[scope] = &breaker{}
}

// Snapshot returns the open circuit breakers, for decisions.
func (b *Breakers) Snapshot() Snapshot {
	s := Snapshot{Complete: b.complete, Open: map[Scope]Count{}}
	for scope, is := range b.open {
		s.Open[scope] = is.count
	}
	return s
}

// Snapshot is the part of the circuit breakers that decisions about machines depend on. It is
// immutable.
type Snapshot struct {
	// Complete reports whether the machines of every slot were counted.
	Complete bool
	// Open are the scopes with an open circuit breaker, with their last counts.
	Open map[Scope]Count
}

// openFor returns the scopes with an open circuit breaker for a machine. One that is open in all
// namespaces is not returned again for one of them.
func (s Snapshot) openFor(m Member) (scopes []Scope) {
	for _, scope := range []Scope{m.Scope.cluster(), m.Scope} {
		for _, where := range []Scope{scope, scope.in(m.Machine.Namespace)} {
			if _, open := s.Open[where]; open {
				scopes = append(scopes, where)
				break
			}
		}
	}
	return slices.Compact(scopes)
}
