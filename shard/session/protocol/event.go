package protocol

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// Event is something that happened: one of the types in this file. Step does not change the Leases
// in events, and callers must not change them later.
type Event interface{ isEvent() }

// Started is the first event.
type Started struct{}

// Woke is the event that Output.WakeAt has been reached. It may be early, late or without a WakeAt.
type Woke struct{}

// Listed is the consistent list that the watch of the fleet's Leases starts from, also after a
// restart.
type Listed struct{ Leases []*coordinationv1.Lease }

// Seen is a Lease of the fleet that the watch shows as added or changed.
type Seen struct{ Lease *coordinationv1.Lease }

// Gone is a Lease of the fleet that the watch shows as deleted, in its last state.
type Gone struct{ Lease *coordinationv1.Lease }

// Replied is the answer to a request of an earlier Output.
type Replied struct{ member.Reply }

// Idle reports that nothing that a Change ended is in flight any more. It answers changes of the
// kinds Stopped, Cancelled, Suspended and Lost, with the ticket of the last of them for the slot.
type Idle struct {
	Slot   int
	Ticket uint64
}

// Opened reports that all objects of a slot that the session has acquired are known, and that keys
// are admitted.
type Opened struct {
	Slot int
	// Epoch is that of the Change by which the slot was acquired.
	Epoch int64
}

// Watched reports what is wrong with the watches of the objects of the slots, each time that it
// changes.
type Watched struct {
	// Broken is a description of what has not been delivered for a long time, by target cluster.
	// Target clusters that are missing have no such problem.
	Broken map[string]string
}

// Compared reports what the session finds out about accounts at clouds, each time that it changes.
type Compared struct{ Accounts member.Accounts }

// Elected reports that the session leads.
type Elected struct{}

// Deposed reports that the session does not lead any more.
type Deposed struct{}

// Weighed reports the weights of the slots that the session holds. Slots that are missing weigh 1.
type Weighed struct {
	Weights map[int]int64
	// Counts is the report of the session about its machines to the other replicas, opaque to this
	// package; nil while it is unknown.
	Counts *string
}

// Leaving reports that the process was asked to end: the session hands over its slots, and then
// Output.Exit is set.
type Leaving struct{}

func (Started) isEvent()  {}
func (Woke) isEvent()     {}
func (Listed) isEvent()   {}
func (Seen) isEvent()     {}
func (Gone) isEvent()     {}
func (Replied) isEvent()  {}
func (Idle) isEvent()     {}
func (Opened) isEvent()   {}
func (Watched) isEvent()  {}
func (Compared) isEvent() {}
func (Elected) isEvent()  {}
func (Deposed) isEvent()  {}
func (Weighed) isEvent()  {}
func (Leaving) isEvent()  {}
