package policy

import (
	"time"
)

// Unchanged is the minimum time for which a Lease that names another holder must be unchanged
// before it is acquired.
const Unchanged = 15 * time.Second

// Lease is one of the two Leases of a namespace, as it was seen.
type Lease struct {
	// Exists is false if there is no Lease of that name; then all other fields are zero.
	Exists bool
	// Holder is its holderIdentity; "" if it has no holder.
	Holder string
	// Since is when, by the replica's own clock, the current version was first seen.
	Since time.Time
	// Duration is its duration, from the last change. Machine Controller Manager writes 15 s and
	// renews; a fleet writes a duration without practical end, once.
	Duration time.Duration
}

// RecheckEvery is the interval at which a served namespace is checked for roots.
const RecheckEvery = 10 * time.Minute

// Roots is the knowledge about the roots of a namespace.
type Roots int

// The values of Roots.
const (
	// Unknown means that they were not listed for this decision.
	Unknown Roots = iota
	// None and Some are the results of a live list.
	None
	Some
)

// Selection is whether the labels of a namespace select it for the fleet.
type Selection int

// The values of Selection.
const (
	// Selected is also that of all namespaces of a fleet that selects none by labels.
	Selected Selection = iota
	// NotSelected namespaces are those of another fleet, or of none.
	NotSelected
	// Undetermined means that the labels are not known yet.
	Undetermined
)

// World is the input of a decision about one namespace.
type World struct {
	Now       time.Time
	Selection Selection
	// Busy is true while work of the fleet runs in a namespace that is not selected.
	Busy bool
	// Fleet is the holderIdentity of the fleet; not "".
	Fleet string
	// Leases are the two, in any order.
	Leases [2]Lease
	Roots  Roots
	// MayRelease is true for the holder of the slot of the namespace's name. Only that one releases
	// Leases; all may acquire them.
	MayRelease bool
}

// Action is an action on the Leases.
type Action int

// The actions.
const (
	// Rest leaves them unchanged.
	Rest Action = iota
	// ListRoots lists roots, and decides again with the result.
	ListRoots
	// Acquire makes the fleet the holder of those in Verdict.Which.
	Acquire
	// Release empties those in Verdict.Which.
	Release
)

// Verdict is the result of a decision.
type Verdict struct {
	Do Action
	// Which of the two Leases the action applies to.
	Which [2]bool
	// Other is the holder that keeps the fleet out; "" if there is none.
	Other string
	// Unheld is true for a namespace that is not selected, and whose Leases have no holder.
	Unheld bool
	// Wake is the time until the next decision; 0 means when a Lease changes, or when there is work in
	// the namespace.
	Wake time.Duration
}

// Served reports whether the fleet may work in the namespace, if that is selected: it holds both
// Leases. In a namespace
// that is terminating, Leases that are gone count as the fleet's: no client can create them again,
// and the objects that are left must be deleted.
func Served(fleet string, leases [2]Lease, ending bool) bool {
	mine := func(l Lease) bool { return l.Holder == fleet || ending && !l.Exists }
	return mine(leases[0]) && mine(leases[1])
}

// Decide returns the action for the Leases of a namespace. Replicas with work there decide, and the
// holder of the slot of the namespace's name: together they cover roots that are created while the
// Leases are free, whichever manager held them before. Leases of a namespace that is not selected
// are released when no work of the fleet runs in it.
func Decide(w World) Verdict {
	var v Verdict
	var held [2]bool
	for i, lease := range w.Leases {
		held[i] = lease.Holder == w.Fleet
		if held[i] || lease.Holder == "" {
			continue
		}
		if remaining := max(Unchanged, lease.Duration) - w.Now.Sub(lease.Since); remaining > 0 {
			v.Other, v.Wake = lease.Holder, max(v.Wake, remaining)
		}
	}
	served, some := held[0] && held[1], held[0] || held[1]
	switch {
	case v.Other != "":
		if w.MayRelease && some {
			v.Do, v.Which = Release, held
		}
	case w.Selection == NotSelected:
		v.Unheld = !some
		if w.MayRelease && some && !w.Busy {
			v.Do, v.Which = Release, held
		}
	case served && !w.MayRelease, w.Selection == Undetermined && !served:
	case w.Roots == Unknown:
		v.Do = ListRoots
	case w.Roots == None:
		if w.MayRelease && some {
			v.Do, v.Which = Release, held
		}
	case served:
		v.Wake = RecheckEvery
	default:
		v.Do, v.Which = Acquire, [2]bool{!held[0], !held[1]}
	}
	return v
}
