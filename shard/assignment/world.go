package assignment

import "time"

// World is all input of an assignment. Everything in it is read only. All times are readings of one
// monotonic clock, the caller's; its origin does not matter, but it is in the past: zero means
// never.
type World struct {
	Now time.Duration
	// Replicas that live, in any order; names are unique. A replica that is not here is permanently
	// gone. One that has announced that it leaves stays here, marked as leaving, also when it has
	// gone: that makes it the home of its slots.
	Replicas []Replica
	// Slots by their number.
	Slots []Slot
	// Accounts that do not answer some replica, in the order in which their slots move.
	Accounts []Account
}

// Replica is one process that may hold slots.
type Replica struct {
	Name string
	// Capacity relative to the others: a replica with 2 gets twice the load of one with 1. Zero and
	// less mean 1.
	Capacity float64
	// Leaving: its slots are assigned to others, and it gets none.
	Leaving bool
	// Limits are, by target cluster, the limits on what can be assigned to it of a target's slots; a
	// missing one is NoLimit.
	Limits map[string]Limit
}

// Limit is how many of a target cluster's slots can be assigned to a replica.
type Limit int

// The limits.
const (
	// NoLimit: as much as its share.
	NoLimit Limit = iota
	// Probe: it has not shown yet that it can serve them, or not again. If it has no slot one is
	// assigned to it, the lightest.
	Probe
	// ProbeMore: it holds slots, and did not take others recently. Once it holds all that are assigned
	// to it, it gets one more.
	ProbeMore
	// Rest: nothing. What it has stays.
	Rest
	// Evict: nothing, and its slots are assigned to others that can be assigned more.
	Evict
	// Retry: it was evicted, and gets one slot, the lightest, to find out whether it can serve again.
	// Its other slots stay.
	Retry
)

// Slot describes one slot.
type Slot struct {
	// Target is the target cluster of the slot's objects: a key of Replica.Limits.
	Target string
	// Weight is the amount of its work that the slot's holder reports, in machines. An empty slot has
	// 0, which Assign counts as slightly more than nothing. Less than 0 means 0.
	Weight int64
	// Holder is the replica whose session holds the slot; "" is none.
	Holder string
	// Assigned is the replica that should hold it, as last written; "" is none yet.
	Assigned string
	// Home is the replica that the slot returns to, if it is available before HomeUntil; "" is none.
	Home      string
	HomeUntil time.Duration
	// UnownedSince is since when the slot has had no holder although Assigned, as it is, could take
	// it. Zero while it is held, and while no replica may take it (quarantine, or a holder not yet
	// proven dead).
	UnownedSince time.Duration
	// Moved is when the slot was last moved for joining or load (Move.Rebalances); zero is never, or
	// unknown.
	Moved time.Duration
	// Passed are the replicas that were passed over for this slot (Move.PassOver), with the end of
	// that.
	Passed map[string]time.Duration
	// MovedForAccount is when the slot was last moved because of an account (Unreached); zero is
	// never, or unknown. It does not move for that reason again before StaysUntil.
	MovedForAccount, StaysUntil time.Duration
}

// Reason is why a slot moves.
type Reason string

// The reasons.
const (
	// New: the slot was not assigned.
	New Reason = "New"
	// Gone: the replica that it is assigned to is dead.
	Gone Reason = "Gone"
	// Leaving: its replica leaves; the slot gets it as its home.
	Leaving Reason = "Leaving"
	// Home: the replica that is the slot's home has returned.
	Home Reason = "Home"
	// NotAcquired: its replica lives and does not take it.
	NotAcquired Reason = "Unclaimed"
	// Unfit: its replica lives and cannot serve it.
	Unfit Reason = "Unfit"
	// Unreached: its replica does not reach an account of its machines, and the other one does. The
	// caller records the time in Slot.MovedForAccount.
	Unreached Reason = "Unreached"
	// Joined: the new replica has too few slots yet.
	Joined Reason = "Joined"
	// Load: its replica carries too much.
	Load Reason = "Load"
)

// Move assigns a slot to another replica.
type Move struct {
	Slot int
	// From is the replica that it was assigned to, "" if there was none. To differs from it.
	From, To string
	Why      Reason
	// Home has to be recorded on the slot together with To; "" removes the record. The caller counts
	// Config.HomeFor from when the record is first seen, and does not restart when only the assigned
	// replica changes.
	Home string
}

// Rebalances reports whether the move counts against the limits: the caller records the time in
// Slot.Moved.
func (m Move) Rebalances() bool { return m.Why == Joined || m.Why == Load }

// MayWait reports whether the slot can stay for some seconds where it is, if it is held there: its
// replica serves it.
func (m Move) MayWait() bool { return m.Rebalances() || m.Why == Home || m.Why == Leaving }

// PassOver reports whether From has to be passed over for this slot for Config.PassOverFor: the
// caller records it in Slot.Passed.
func (m Move) PassOver() bool { return m.Why == NotAcquired }

// Verdict is an assignment.
type Verdict struct {
	// Moves in the order of slots, at most one for each.
	Moves []Move
	// Shares of the replicas that do not leave, by name, as they are after the moves.
	Shares []Share
	// Imbalance is the load of the busiest replica divided by the mean, by weight and capacity, after
	// the moves; 0 without replicas. 1 is even.
	Imbalance float64
	// Again is when assigning again is worthwhile although nothing else has changed; zero is never.
	Again time.Duration
}

// Share is the part that one replica should carry.
type Share struct {
	Replica string
	Slots   int
	// Weight is the sum of Slot.Weight.
	Weight int64
}
