package protocol

import member "github.com/machine-controller-fleet/machine-controller-fleet/membership"

// Everything stands for all slots in a Change of the kind Suspended and in its answer, which also
// covers what is in flight under the leadership.
const Everything = -1

// Output lists what the caller of a step has to do: carry out the changes, in their order, then
// send the requests, in any order and without waiting for one another. Then it has to read Fence,
// Suspended and Entitled again.
type Output struct {
	// Slots are those for which the result of Entitled may have changed.
	Slots    []int
	Changes  []Change
	Requests []member.Request
	// Exit, if set, ends the process. The outputs of later steps are empty.
	Exit *Exit
	// WakeAt is when to step again if nothing happens before; zero: there is nothing to wait for.
	WakeAt member.Moment
}

// Kind is the kind of a change.
type Kind string

// The kinds of changes.
const (
	// Acquired: the session holds the slot. Keys may be admitted once a consistent list that began
	// after this has shown its objects.
	Acquired Kind = "acquired"
	// Stopped: no key may be started any more; what is in flight continues. Has to be answered by
	// Idle.
	Stopped Kind = "stopped"
	// Resumed: keys may be admitted again, after Stopped, Cancelled or Suspended.
	Resumed Kind = "resumed"
	// Cancelled: as Stopped, and the slot's contexts are cancelled, because what is in flight takes
	// too long. Has to be answered by Idle.
	Cancelled Kind = "cancelled"
	// Suspended: the fence has passed. As Cancelled, for Everything. Has to be answered by Idle.
	Suspended Kind = "suspended"
	// Lost: the session does not hold the slot any more. Contexts are cancelled and informers stopped.
	// Has to be answered by Idle.
	Lost Kind = "lost"
)

// Change is a change for a slot that has to be carried out.
type Change struct {
	// Slot is the slot's number, or Everything.
	Slot int
	// Epoch is the slot's epoch, if it is held.
	Epoch int64
	// Kind is the kind of the change.
	Kind Kind
	// From is the session that held an acquired slot and did not release it; "" if the slot was
	// released or never held.
	From string
	// Ticket is the one that the answering Idle has to carry; 0 if no answer is expected.
	Ticket uint64
}

// Reason is why a process has to exit.
type Reason string

// The reasons to exit.
const (
	// ReasonLeft: the session has left, and holds nothing.
	ReasonLeft Reason = "Left"
	// ReasonLost: the session Lease is gone, has another holder or is older than it was. A new session
	// has to be started.
	ReasonLost Reason = "SessionLost"
	// ReasonInFlight: something is still in flight long after the fence, or long after it was
	// cancelled. The session Lease is not changed, so that no other session takes over before what is
	// in flight has ended with the process.
	ReasonInFlight Reason = "InFlight"
	// ReasonUnfit: the session could not list the Leases of the fleet, or could not release a slot,
	// and has emptied its own Lease so that other sessions take over its slots.
	ReasonUnfit Reason = "Unfit"
	// ReasonMismatch: the fleet was installed with other settings.
	ReasonMismatch Reason = "SettingsMismatch"
)

// Exit ends the process.
type Exit struct {
	// Reason is the reason.
	Reason Reason
	// Message states what was expected, what came and what to do.
	Message string
	// Empty is true if the session Lease has been emptied.
	Empty bool
}
