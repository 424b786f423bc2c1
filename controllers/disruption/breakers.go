package disruption

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Thresholds say when too many machines of a scope are not Ready, and when few enough are not.
type Thresholds struct {
	// NotReady and Percent: replacement halts where at least so many machines are not Ready, and they are more than so much
	// of all. With a Percent of 100 it never does.
	NotReady, Percent int
	// ClosePercent and CloseAfter: it goes on where less than so much has not been Ready for so long.
	ClosePercent int
	CloseAfter   time.Duration
}

// DefaultThresholds are those that hold unless the fleet is told otherwise.
func DefaultThresholds() Thresholds {
	return Thresholds{NotReady: 5, Percent: 50, ClosePercent: 30, CloseAfter: 5 * time.Minute}
}

// Validate returns all that is wrong with them.
func (t Thresholds) Validate() error {
	var errs []error
	if t.NotReady < 1 {
		errs = append(errs, fmt.Errorf("the number of machines that are not Ready: expected at least 1, got %d", t.NotReady))
	}
	if t.Percent < 1 || t.Percent > 100 {
		errs = append(errs, fmt.Errorf("the percentage that halts: expected 1 to 100, got %d", t.Percent))
	}
	if t.ClosePercent < 1 || t.ClosePercent > t.Percent {
		errs = append(errs, fmt.Errorf("the percentage that resumes: expected 1 to the one that halts (%d), so that what goes on does not halt at once, got %d", t.Percent, t.ClosePercent))
	}
	if t.CloseAfter < 0 {
		errs = append(errs, fmt.Errorf("the time after which it resumes: must not be negative, got %v", t.CloseAfter))
	}
	return errors.Join(errs...)
}

// tooMany says that so many of a whole are too many.
func (t Thresholds) tooMany(bad, all int) bool { return bad >= t.NotReady && 100*bad > t.Percent*all }

// few says that few enough of a count are not Ready. Where there are no machines any more, none are.
func (t Thresholds) few(n Count) bool {
	return n.NotReady == 0 || 100*n.NotReady < t.ClosePercent*(n.Ready+n.NotReady)
}

// trips reports whether a scope is to be halted, and where: in all namespaces or in one.
func (t Thresholds) trips(scope Scope, tally Tally) (where Scope, isOpen bool) {
	for _, namespace := range []string{"", tally.worst("")} {
		if n := tally.evidence(namespace); t.tooMany(n.NotReady, n.Ready+n.NotReady) {
			return scope.in(namespace), true
		}
	}
	return scope, false
}

// Breakers are the scopes in which no machine is replaced for its health, as one process sees them. The zero value knows
// nothing yet, and allows nothing.
type Breakers struct {
	complete bool
	open     map[Scope]*breaker
}

// breaker is a scope that is halted.
type breaker struct {
	count Count     // when it was last seen
	well  time.Time // since when it has been seen well; zero: it is not
}

// Step takes in what all slots come to. It returns what has changed, and when to ask again if nothing else happens; zero:
// there is nothing to wait for. now must have been read from one clock, ours: nobody else's time counts.
//
// A scope is halted in all namespaces where too many machines are not Ready without those of any one namespace. Else it is halted
// in the namespace with most of them, where it is for these that too many are not Ready.
func (h *Breakers) Step(now time.Time, t Thresholds, total map[Scope]Tally, complete bool) (changed bool, again time.Time) {
	changed = h.complete != complete
	h.complete = complete
	for scope, tally := range total {
		where, isOpen := t.trips(scope, tally)
		if isOpen && h.open[where] == nil {
			h.trip(where)
			changed = true
		}
	}
	for scope, is := range h.open {
		tally := total[scope.in("")]
		is.count = tally.Count
		switch {
		case !complete || !t.few(tally.evidence(scope.Namespace)): // what was not counted may be not Ready
			is.well = time.Time{}
			continue
		case is.well.IsZero():
			is.well = now
		}
		end := is.well.Add(t.CloseAfter)
		if !end.After(now) {
			delete(h.open, scope)
			changed = true
		} else if again.IsZero() || end.Before(again) {
			again = end
		}
	}
	return changed, again
}

// Remember records that, according to a root of a namespace, a scope was halted by the replica that decided before. The scope is
// halted in that namespace only, since a root states nothing of other namespaces, until this replica has seen the scope well for
// the required time: since when the scope has been well cannot be known. Remember reports whether the halt is new.
func (h *Breakers) Remember(scope Scope, namespace string) (news bool) {
	scope = scope.in(namespace)
	if h.open[scope] != nil {
		return false
	}
	h.trip(scope)
	return true
}

func (h *Breakers) trip(scope Scope) {
	if h.open == nil {
		h.open = map[Scope]*breaker{}
	}
	h.open[scope] = &breaker{}
}

// Snapshot returns the halts as they stand, for decisions.
func (h *Breakers) Snapshot() Snapshot {
	s := Snapshot{Complete: h.complete, Open: map[Scope]Count{}}
	for scope, is := range h.open {
		s.Open[scope] = is.count
	}
	return s
}

// Snapshot is what decisions about machines need to know of the halts. It is not changed once it was made.
type Snapshot struct {
	// Complete says that the machines of every slot were counted.
	Complete bool
	// Open are the scopes that are halted, with what was counted there last.
	Open map[Scope]Count
}

// openFor returns the scopes that halt a machine. One that is halted in all namespaces is not named once more for one of them.
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

// Equal says whether two standings have the same scopes, whatever the counts.
func (s Snapshot) Equal(other Snapshot) bool {
	return s.Complete == other.Complete && maps.EqualFunc(s.Open, other.Open, func(_, _ Count) bool { return true })
}
