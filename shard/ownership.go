package shard

import (
	"context"
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// kind of an ownership. The set is closed.
type kind uint8

const (
	none       kind = iota
	ofSlot          // a slot
	ofLeader        // the leadership
	ofProtocol      // requests about Leases, which say for themselves what they need
)

// Ownership is the permission under which something is done. It travels in the context, and is worth something only as
// long as the Fence says so.
type Ownership struct {
	kind  kind
	slot  int
	epoch int64
	need  membership.Need
}

type ownershipKey struct{}

// withOwnership returns a context under an ownership.
func withOwnership(ctx context.Context, o Ownership) context.Context {
	return context.WithValue(ctx, ownershipKey{}, o)
}

// ownershipOf returns the ownership in a context; the zero value allows nothing.
func ownershipOf(ctx context.Context) Ownership {
	o, _ := ctx.Value(ownershipKey{}).(Ownership)
	return o
}

// String tells the ownership as it stands in a User-Agent, after the session; "" for none.
func (o Ownership) String() string {
	switch o.kind {
	case ofSlot:
		return fmt.Sprintf("slot=%d; epoch=%d", o.slot, o.epoch)
	case ofLeader:
		return "leader"
	case ofProtocol:
		if o.need == membership.NeedLeadership {
			return "leader"
		}
	case none:
	}
	return ""
}

// RefusedError is what the Fence answers to work that is not, or not any more, this session's to do.
type RefusedError struct {
	// What was about to be begun.
	What string
	// Under tells the ownership that it had.
	Under string
	// Why it was refused.
	Why Refusal
}

// Refusal is why the Fence refused.
type Refusal string

// The reasons.
const (
	Unowned  Refusal = "unowned"  // no ownership in the context: a defect of the caller
	Lost     Refusal = "lost"     // the slot or the leadership is not held any more
	Stopping Refusal = "stopping" // the slot is being handed over, and calls of drivers begin no more
	Fenced   Refusal = "fenced"   // the fence has passed, or is too near for a create
)

// Error tells what was refused, under which ownership, and why.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s was not begun: ownership %q is %s", e.What, e.Under, e.Why)
}

// NotOurs tells a runner that the key is not a failure of this replica's: its owner sees to it.
func (e *RefusedError) NotOurs() bool { return e.Why != Unowned }

// NotSent tells that a request has certainly had no effect.
func (*RefusedError) NotSent() bool { return true }
