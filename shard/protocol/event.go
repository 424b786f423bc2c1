package protocol

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// Event is something that happened: one of the types in this file. The Leases in events are not changed here, and must
// not be changed later.
type Event interface{ isEvent() }

// Started is the first event.
type Started struct{}

// Woke is the event when Output.WakeAt has come. It may come early, late or without being asked for.
type Woke struct{}

// Listed is the consistent list that the watch of the fleet's Leases starts from, also when it starts anew.
type Listed struct{ Leases []*coordinationv1.Lease }

// Seen is a Lease of the fleet that the watch shows as added or changed.
type Seen struct{ Lease *coordinationv1.Lease }

// Gone is a Lease of the fleet that the watch shows as deleted, in its last state.
type Gone struct{ Lease *coordinationv1.Lease }

// Replied is the answer to a request of an earlier Output.
type Replied struct{ member.Reply }

// Idle says that nothing is in flight any more of what a Change told to end. It answers changes of the kinds Stopped,
// Cancelled, Suspended and Lost, with the ticket of the last of them for the slot.
type Idle struct {
	Slot   int
	Ticket uint64
}

// Opened says that all objects of a slot that the session has acquired are known, and keys are taken.
type Opened struct {
	Slot int
	// Epoch is that of the Change by which the slot was acquired.
	Epoch int64
}

// Watched says what is wrong with the watches of the objects of the slots, each time that it changes.
type Watched struct {
	// Broken has, by target cluster, what has not been delivered for long, for people; nothing is wrong with one that is
	// missing.
	Broken map[string]string
}

// Elected says that the session leads.
type Elected struct{}

// Deposed says that the session does not lead any more.
type Deposed struct{}

// Weighed tells the weights of the slots that the session holds. Slots that are missing weigh 1.
type Weighed struct {
	Weights map[int]int64
	// Counts is what the session tells the others of its machines, in a form that is theirs; nil while it cannot say.
	Counts *string
}

// Leaving says that the process was asked to end: it hands its slots over, and the output's Exit comes when that is done.
type Leaving struct{}

func (Started) isEvent() {}
func (Woke) isEvent()    {}
func (Listed) isEvent()  {}
func (Seen) isEvent()    {}
func (Gone) isEvent()    {}
func (Replied) isEvent() {}
func (Idle) isEvent()    {}
func (Opened) isEvent()  {}
func (Watched) isEvent() {}
func (Elected) isEvent() {}
func (Deposed) isEvent() {}
func (Weighed) isEvent() {}
func (Leaving) isEvent() {}
