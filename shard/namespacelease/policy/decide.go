package policy

import (
	"time"
)

// Unchanged is how long a Lease that names another holder has to be unchanged, at the least, before it is taken.
const Unchanged = 15 * time.Second

// Lease is one of the two Leases of a namespace, as it is seen.
type Lease struct {
	// Exists is false when there is none of that name; then all else is zero.
	Exists bool
	// Holder is its holderIdentity; "" when it has no holder.
	Holder string
	// Since is when, by our own clock, it was first seen as it is now.
	Since time.Time
	// Duration is for how long its holder claims it after a change. Machine Controller Manager says 15 s and renews; a
	// fleet says once that it stays.
	Duration time.Duration
}

// LookAgain is how often a namespace that is served is looked at for whether it still has a root.
const LookAgain = 10 * time.Minute

// Roots is what is known about the roots of a namespace.
type Roots int

// What can be known about roots.
const (
	// Unknown means that they were not listed for this decision.
	Unknown Roots = iota
	// None and Some are what a live list has shown.
	None
	Some
)

// World is what a decision about one namespace rests on.
type World struct {
	Now time.Time
	// Fleet is the holderIdentity of the fleet; not "".
	Fleet string
	// Leases are the two, in any order.
	Leases [2]Lease
	Roots  Roots
	// MayGive is true for the holder of the slot of the namespace's name. Only that one gives Leases up; all may take them.
	MayGive bool
}

// Action is what to do with the Leases.
type Action int

// The actions.
const (
	// Rest leaves them as they are.
	Rest Action = iota
	// Look lists roots, and decides again with what the list shows.
	Look
	// Take makes the fleet the holder of those in Verdict.Which.
	Take
	// Give empties those in Verdict.Which.
	Give
)

// Verdict is a decision.
type Verdict struct {
	Do Action
	// Which of the two Leases the action is about.
	Which [2]bool
	// Other is the holder that keeps the fleet out; "" when nobody does.
	Other string
	// Wake is when to decide again, from now; 0 means when a Lease changes, or when there is something to do in the
	// namespace.
	Wake time.Duration
}

// Served says whether the fleet may work in the namespace: it holds both Leases. In a namespace that is ending those that
// are gone count as ours: nobody can make them again, and what is left there has to be taken apart.
func Served(fleet string, leases [2]Lease, ending bool) bool {
	mine := func(l Lease) bool { return l.Holder == fleet || ending && !l.Exists }
	return mine(leases[0]) && mine(leases[1])
}

// Decide says what to do with the Leases of a namespace. Whoever has something to do there decides, and the holder of the
// slot of the namespace's name: both are there when roots come while the Leases are free, whoever had them before.
func Decide(w World) Verdict {
	var v Verdict
	var held [2]bool
	for i, lease := range w.Leases {
		held[i] = lease.Holder == w.Fleet
		if held[i] || lease.Holder == "" {
			continue
		}
		if left := max(Unchanged, lease.Duration) - w.Now.Sub(lease.Since); left > 0 {
			v.Other, v.Wake = lease.Holder, max(v.Wake, left)
		}
	}
	served, some := held[0] && held[1], held[0] || held[1]
	switch {
	case v.Other != "":
		if w.MayGive && some {
			v.Do, v.Which = Give, held
		}
	case served && !w.MayGive:
	case w.Roots == Unknown:
		v.Do = Look
	case w.Roots == None:
		if w.MayGive && some {
			v.Do, v.Which = Give, held
		}
	case served:
		v.Wake = LookAgain
	default:
		v.Do, v.Which = Take, [2]bool{!held[0], !held[1]}
	}
	return v
}
