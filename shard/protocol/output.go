package protocol

import member "github.com/machine-controller-fleet/machine-controller-fleet/membership"

// Everything stands for all slots in a Change of the kind Suspended and in its answer, which counts what is in flight
// under the leadership too.
const Everything = -1

// Output is what a step asks of the shell: to carry out the changes, in their order, then to send the requests, in any
// order and without waiting for one another. Then Fence, Suspended and Entitled are to be read.
type Output struct {
	// Slots are those of which Entitled may say something else than before.
	Slots    []int
	Changes  []Change
	Requests []member.Request
	// Exit, if set, ends the process. The outputs of later steps are empty.
	Exit *Exit
	// WakeAt is when to step again if nothing happens before; zero: there is nothing to wait for.
	WakeAt member.Moment
}

// Kind says what changes for a slot.
type Kind string

// The kinds of changes.
const (
	// Acquired: the session holds the slot. Keys may be taken as soon as a consistent read that began after this shows them.
	Acquired Kind = "acquired"
	// Stopped: no key may be started any more; what is in flight goes on. To be answered by Idle.
	Stopped Kind = "stopped"
	// Resumed: keys may be taken again, after Stopped, Cancelled or Suspended.
	Resumed Kind = "resumed"
	// Cancelled: as Stopped, and the slot's contexts are cancelled, because what is in flight takes too long. To be answered by Idle.
	Cancelled Kind = "cancelled"
	// Suspended: the fence has passed. As Cancelled, for Everything. To be answered by Idle.
	Suspended Kind = "suspended"
	// Lost: the session does not hold the slot any more. Contexts are cancelled, informers go. To be answered by Idle.
	Lost Kind = "lost"
)

// Change tells what changes for a slot.
type Change struct {
	// Slot is the slot's number, or Everything.
	Slot int
	// Epoch is the slot's epoch as far as it is held.
	Epoch int64
	// Kind says what changes.
	Kind Kind
	// Ticket is to be named by the Idle that answers; 0 if none is expected.
	Ticket uint64
}

// Reason is why a process has to exit.
type Reason string

// The reasons to exit.
const (
	// ReasonLeft: the session has left, and holds nothing.
	ReasonLeft Reason = "Left"
	// ReasonLost: the session Lease is gone, has another holder or is older than it was. A new session is to be started.
	ReasonLost Reason = "SessionLost"
	// ReasonInFlight: something is still in flight long after the fence, or long after it was cancelled. The session
	// Lease is left as it is, so that nobody takes over before what is in flight has ended with the process.
	ReasonInFlight Reason = "InFlight"
	// ReasonUnfit: the session could not list the Leases of the fleet, or could not release a slot, and has given its own Lease up so
	// that others take its slots.
	ReasonUnfit Reason = "Unfit"
	// ReasonMismatch: the fleet was installed with other settings.
	ReasonMismatch Reason = "SettingsMismatch"
)

// Exit tells the process to end.
type Exit struct {
	// Reason says why.
	Reason Reason
	// Message says what was expected, what came and what to do.
	Message string
	// Empty says that the session Lease has been emptied.
	Empty bool
}
