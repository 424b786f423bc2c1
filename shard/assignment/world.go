package assignment

import "time"

// World is all that a plan rests on. Everything in it is read only. All times are readings of one monotonic clock, the
// planner's; its origin does not matter, but it lies in the past: zero means never.
type World struct {
	Now time.Duration
	// Replicas that live, in any order; names are unique. One that is not here is gone for good. One that has said that it
	// leaves stays here, marked so, also when it has gone: its slots get their home from that.
	Replicas []Replica
	// Slots by their number.
	Slots []Slot
}

// Replica is one process that may hold slots.
type Replica struct {
	Name string
	// Capacity relative to the others: a replica with 2 gets twice the load of one with 1. Zero and less mean 1.
	Capacity float64
	// Leaving: it gives its slots away and gets none.
	Leaving bool
	// Limits say, by target cluster, what it can be given of a target's slots; a missing one is NoLimit.
	Limits map[string]Limit
}

// Limit is what a replica can be given of a target cluster's slots.
type Limit int

// The limits.
const (
	// NoLimit: as much as its share.
	NoLimit Limit = iota
	// Probe: it has not shown yet that it can serve them, or not again. If it has no slot it is given one, the lightest.
	Probe
	// ProbeMore: it holds slots, and did not take others lately. Once it holds all that it was given, it is given one more.
	ProbeMore
	// Rest: nothing. What it has stays.
	Rest
	// Evict: nothing, and what it has goes to others that can be given more.
	Evict
	// Retry: it was evicted, and is given one slot, the lightest, to find out whether it can serve again. What it has stays.
	Retry
)

// Slot is what is known about one slot.
type Slot struct {
	// Target is the target cluster of the slot's objects: a key of Replica.Limits.
	Target string
	// Weight is what the slot's holder says its work is worth, in machines. An empty slot has 0, which Plan takes for a
	// little more than nothing. Less than 0 means 0.
	Weight int64
	// Holder is the replica whose session holds the slot; "" is nobody.
	Holder string
	// Assigned is the replica that should hold it, as last written; "" is none yet.
	Assigned string
	// Home is the replica to which the slot goes back, when that is there before HomeUntil; "" is none.
	Home      string
	HomeUntil time.Duration
	// UnownedSince is since when nobody holds the slot although Preferred, as it is, could take it. Zero while it is held,
	// and while nobody may take it (quarantine, or a holder not yet proven dead).
	UnownedSince time.Duration
	// Moved is when the slot was last planned for the sake of joining or load (Move.Calm); zero is never, or not known.
	Moved time.Duration
	// Passed are the replicas that were passed over for this slot (Move.PassOver), with the end of that.
	Passed map[string]time.Duration
}

// Reason says why a slot moves.
type Reason string

// The reasons.
const (
	// New: the slot had no preferred holder.
	New Reason = "New"
	// Gone: its preferred holder is dead.
	Gone Reason = "Gone"
	// Leaving: its preferred holder leaves; the slot's home is remembered.
	Leaving Reason = "Leaving"
	// Home: the replica that the slot left as its home is back.
	Home Reason = "Home"
	// NotAcquired: its preferred holder lives and does not take it.
	NotAcquired Reason = "Unclaimed"
	// Unfit: its preferred holder lives and cannot serve it.
	Unfit Reason = "Unfit"
	// Joined: its new preferred holder has too few slots yet.
	Joined Reason = "Joined"
	// Load: its preferred holder carries too much.
	Load Reason = "Load"
)

// Move gives a slot a new preferred holder.
type Move struct {
	Slot int
	// From is the preferred holder until now, "" when there was none. To differs from it.
	From, To string
	Why      Reason
	// Home is what is to be noted on the slot together with To; "" takes the note away. The planner counts Config.HomeFor
	// from when the note is first seen, and does not begin again when only the preferred holder changes.
	Home string
}

// Calm says that the move counts against the limits: the caller notes the time in Slot.Moved.
func (m Move) Calm() bool { return m.Why == Joined || m.Why == Load }

// PassOver says that From is to be passed over for this slot for Config.PassOverFor: the caller notes it in Slot.Passed.
func (m Move) PassOver() bool { return m.Why == NotAcquired }

// Verdict is a plan.
type Verdict struct {
	// Moves in the order of slots, at most one for each.
	Moves []Move
	// Shares of the replicas that do not leave, by name, as they are after the moves.
	Shares []Share
	// Imbalance is the load of the busiest replica divided by the mean, by weight and capacity, after the moves; 0 without
	// replicas. 1 is even.
	Imbalance float64
	// Again is when planning is worth repeating although nothing else has changed; zero is never.
	Again time.Duration
}

// Share is what one replica should carry.
type Share struct {
	Replica string
	Slots   int
	// Weight is the sum of Slot.Weight.
	Weight int64
}
