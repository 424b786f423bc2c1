package brake

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
	// ResumePercent and ResumeAfter: it goes on where less than so much has not been Ready for so long.
	ResumePercent int
	ResumeAfter   time.Duration
}

// DefaultThresholds are those that hold unless the fleet is told otherwise.
func DefaultThresholds() Thresholds {
	return Thresholds{NotReady: 5, Percent: 50, ResumePercent: 30, ResumeAfter: 5 * time.Minute}
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
	if t.ResumePercent < 1 || t.ResumePercent > t.Percent {
		errs = append(errs, fmt.Errorf("the percentage that resumes: expected 1 to the one that halts (%d), so that what goes on does not halt at once, got %d", t.Percent, t.ResumePercent))
	}
	if t.ResumeAfter < 0 {
		errs = append(errs, fmt.Errorf("the time after which it resumes: must not be negative, got %v", t.ResumeAfter))
	}
	return errors.Join(errs...)
}

// tooMany says that so many of a whole are too many.
func (t Thresholds) tooMany(bad, all int) bool { return bad >= t.NotReady && 100*bad > t.Percent*all }

// few says that few enough of a count are not Ready. Where there are no machines any more, none are.
func (t Thresholds) few(n Count) bool {
	return n.NotReady == 0 || 100*n.NotReady < t.ResumePercent*(n.Ready+n.NotReady)
}

// halts reports whether a scope is to be halted, and where: in all namespaces or in one.
func (t Thresholds) halts(scope Scope, tally Tally) (where Scope, isHalted bool) {
	for _, namespace := range []string{"", tally.worst("")} {
		if n := tally.evidence(namespace); t.tooMany(n.NotReady, n.Ready+n.NotReady) {
			return scope.in(namespace), true
		}
	}
	return scope, false
}

// Halts are the scopes in which no machine is replaced for its health, as one process sees them. The zero value knows
// nothing yet, and allows nothing.
type Halts struct {
	complete bool
	halted   map[Scope]*halt
}

// halt is a scope that is halted.
type halt struct {
	count Count     // when it was last seen
	well  time.Time // since when it has been seen well; zero: it is not
}

// Step takes in what all slots come to. It returns what has changed, and when to ask again if nothing else happens; zero:
// there is nothing to wait for. now must have been read from one clock, ours: nobody else's time counts.
//
// A scope is halted in all namespaces where too many machines are not Ready without those of any one namespace. Else it is halted
// in the namespace with most of them, where it is for these that too many are not Ready.
func (h *Halts) Step(now time.Time, t Thresholds, total map[Scope]Tally, complete bool) (changed bool, again time.Time) {
	changed = h.complete != complete
	h.complete = complete
	for scope, tally := range total {
		where, isHalted := t.halts(scope, tally)
		if isHalted && h.halted[where] == nil {
			h.halt(where)
			changed = true
		}
	}
	for scope, is := range h.halted {
		tally := total[scope.in("")]
		is.count = tally.Count
		switch {
		case !complete || !t.few(tally.evidence(scope.Namespace)): // what was not counted may be not Ready
			is.well = time.Time{}
			continue
		case is.well.IsZero():
			is.well = now
		}
		end := is.well.Add(t.ResumeAfter)
		if !end.After(now) {
			delete(h.halted, scope)
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
func (h *Halts) Remember(scope Scope, namespace string) (news bool) {
	scope = scope.in(namespace)
	if h.halted[scope] != nil {
		return false
	}
	h.halt(scope)
	return true
}

func (h *Halts) halt(scope Scope) {
	if h.halted == nil {
		h.halted = map[Scope]*halt{}
	}
	h.halted[scope] = &halt{}
}

// Standing returns the halts as they stand, for decisions.
func (h *Halts) Standing() Standing {
	s := Standing{Complete: h.complete, Halted: map[Scope]Count{}}
	for scope, is := range h.halted {
		s.Halted[scope] = is.count
	}
	return s
}

// Standing is what decisions about machines need to know of the halts. It is not changed once it was made.
type Standing struct {
	// Complete says that the machines of every slot were counted.
	Complete bool
	// Halted are the scopes that are halted, with what was counted there last.
	Halted map[Scope]Count
}

// halts returns the scopes that halt a machine. One that is halted in all namespaces is not named once more for one of them.
func (s Standing) halts(m Member) (scopes []Scope) {
	for _, scope := range []Scope{m.Scope.cluster(), m.Scope} {
		for _, where := range []Scope{scope, scope.in(m.Machine.Namespace)} {
			if _, halted := s.Halted[where]; halted {
				scopes = append(scopes, where)
				break
			}
		}
	}
	return slices.Compact(scopes)
}

// Equal says whether two standings have the same scopes, whatever the counts.
func (s Standing) Equal(other Standing) bool {
	return s.Complete == other.Complete && maps.EqualFunc(s.Halted, other.Halted, func(_, _ Count) bool { return true })
}
