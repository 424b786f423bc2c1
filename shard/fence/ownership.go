package fence

import (
	"context"
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// kind is the kind of an ownership. The set of kinds is closed.
type kind uint8

const (
	none       kind = iota
	ofSlot          // a slot
	ofLeader        // the leadership
	ofProtocol      // requests about Leases, each with its own requirement
	ofUser          // a user's change of a MachineDeployment, which needs no slot
)

// Ownership is the permission under which work is done. The context carries it, and it is valid
// only as long as the Fence accepts it.
type Ownership struct {
	kind  kind
	slot  int
	epoch int64
	need  membership.Need

	namespace, user string
}

type ownershipKey struct{}

// withOwnership returns a context that carries an ownership.
func withOwnership(ctx context.Context, o Ownership) context.Context {
	return context.WithValue(ctx, ownershipKey{}, o)
}

// WithNeed returns a context for a request about a Lease, with the requirement of the request.
func WithNeed(ctx context.Context, need membership.Need) context.Context {
	return withOwnership(ctx, Ownership{kind: ofProtocol, need: need})
}

// ForUser returns a context for changes of MachineDeployments of a namespace that an authenticated
// user has requested, and could send itself. They decide nothing that an owner decides, so any
// session may send them at any time: the API server accepts one only for the version that it was
// decided on.
func ForUser(ctx context.Context, namespace, user string) context.Context {
	return withOwnership(ctx, Ownership{kind: ofUser, namespace: namespace, user: user})
}

// ownershipOf returns the ownership in a context; the zero value allows nothing.
func ownershipOf(ctx context.Context) Ownership {
	o, _ := ctx.Value(ownershipKey{}).(Ownership)
	return o
}

// String returns the ownership as part of a User-Agent, after the session; "" for none.
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
	case ofUser:
		return "user=" + o.user
	case none:
	}
	return ""
}

// RefusedError is the Fence's answer to work that is not, or no longer, permitted to this session.
type RefusedError struct {
	// What is the work that was about to begin.
	What string
	// Under is the ownership of the work.
	Under string
	// Why is the reason of the refusal.
	Why Refusal
}

// Refusal is the reason why the Fence refused work.
type Refusal string

// The reasons.
const (
	Unowned  Refusal = "unowned"  // no ownership in the context: a defect of the caller
	Lost     Refusal = "lost"     // the slot or the leadership is no longer held
	Stopping Refusal = "stopping" // the slot is being handed over, and no call of a driver begins
	Fenced   Refusal = "fenced"   // the fence has passed, or is too near for a create
)

// Error returns what was refused, under which ownership, and why.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s was not begun: ownership %q is %s", e.What, e.Under, e.Why)
}

// NotOurs reports whether a runner should not count the refusal as a failure: the key's owner
// reconciles it.
func (e *RefusedError) NotOurs() bool { return e.Why != Unowned }

// NotSent reports whether the request has certainly had no effect. It returns true.
func (*RefusedError) NotSent() bool { return true }
