package disruption

import (
	"maps"
	"slices"
	"time"
)

// MaxThresholds is how many different thresholds of annotations a process keeps circuit breakers
// for. Tenants write annotations, and each of them costs a comparison with every scope, at each
// count.
const MaxThresholds = 64

// AllBreakers are the circuit breakers of all thresholds in use: those of the flags, and those of
// annotations. The counts do not depend on thresholds, and which circuit breakers are open does. So
// thresholds affect the roots that have them, and no others.
type AllBreakers struct {
	flags Thresholds
	of    map[Thresholds]*Breakers
	// namespaces are those that use the thresholds; all use those of the flags.
	namespaces map[Thresholds]map[string]bool
	displaced  map[Thresholds]bool
}

// NewAllBreakers returns AllBreakers in which only the thresholds of the flags are in use.
func NewAllBreakers(flags Thresholds) *AllBreakers {
	return &AllBreakers{flags: flags, of: map[Thresholds]*Breakers{flags: {}}}
}

// Use sets which thresholds are in use in addition to those of the flags: those of the annotations
// of each namespace, the most important first and each once, up to MaxThresholds different ones.
// Namespaces take turns, so that one that has many displaces none of the first ones of others. The
// circuit breakers of thresholds that stay in use stay as they are.
func (a *AllBreakers) Use(wanted map[string][]Thresholds) {
	a.namespaces, a.displaced = map[Thresholds]map[string]bool{}, map[Thresholds]bool{}
	left := slices.Sorted(maps.Keys(wanted))
	for turn := 0; len(left) > 0; turn++ {
		left = slices.DeleteFunc(left, func(namespace string) bool { return turn >= len(wanted[namespace]) })
		for _, namespace := range left {
			a.use(wanted[namespace][turn], namespace)
		}
	}
	maps.DeleteFunc(a.of, func(t Thresholds, _ *Breakers) bool { return t != a.flags && a.namespaces[t] == nil })
}

func (a *AllBreakers) use(t Thresholds, namespace string) {
	switch {
	case t == a.flags:
		return
	case a.namespaces[t] == nil && len(a.namespaces) == MaxThresholds:
		a.displaced[t] = true
		return
	case a.namespaces[t] == nil:
		a.namespaces[t] = map[string]bool{}
	}
	a.namespaces[t][namespace] = true
	if a.of[t] == nil {
		a.of[t] = &Breakers{}
	}
}

// Step updates all circuit breakers with the tallies of all slots. It returns when to call it again
// without a new count, as Breakers.step does.
func (a *AllBreakers) Step(now time.Time, total map[Scope]Tally, complete bool) (again time.Time) {
	counts := rank(total)
	for t, breakers := range a.of {
		next := breakers.step(now, t, counts, complete)
		if again.IsZero() || !next.IsZero() && next.Before(again) {
			again = next
		}
	}
	return again
}

// Restore records, as Breakers.Restore does, that a circuit breaker is open. With thresholds that
// are not in use, or with which none ever opens, it does nothing.
func (a *AllBreakers) Restore(t Thresholds, scope Scope, namespace string) (isNew bool) {
	breakers := a.of[t]
	return breakers != nil && !t.neverOpens() && breakers.Restore(scope, namespace)
}

// Snapshots returns the open circuit breakers of all thresholds.
func (a *AllBreakers) Snapshots() Snapshots {
	s := Snapshots{Of: map[Thresholds]InUse{}, displaced: a.displaced}
	for t, breakers := range a.of {
		is := InUse{Snapshot: breakers.Snapshot(), Namespaces: a.namespaces[t]}
		maps.DeleteFunc(is.Open, func(scope Scope, _ Count) bool {
			return is.Namespaces != nil && scope.Namespace != "" && !is.Namespaces[scope.Namespace]
		})
		s.Of[t] = is
	}
	return s
}

// Snapshots are the open circuit breakers of all thresholds in use. They are immutable.
type Snapshots struct {
	Of        map[Thresholds]InUse
	displaced map[Thresholds]bool
}

// InUse are the open circuit breakers of thresholds.
type InUse struct {
	Snapshot

	// Namespaces are those that use the thresholds. Nil means all.
	Namespaces map[string]bool
}

// For returns the first of a root's thresholds that can be applied, with their open circuit
// breakers. displaced reports whether others before them cannot be, because too many are in use.
// counted is false while they were not compared with the counts.
func (s Snapshots) For(all []Thresholds) (t Thresholds, is Snapshot, displaced, counted bool) {
	for _, t = range all {
		if !s.displaced[t] {
			break
		}
		displaced = true
	}
	used, counted := s.Of[t]
	return t, used.Snapshot, displaced, counted
}
