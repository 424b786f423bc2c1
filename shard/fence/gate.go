package fence

import (
	"context"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Gate admits keys of one kind to a runner.
type Gate[K comparable] struct {
	fence  *Fence
	slotOf func(key K) (slot int, ok bool)
}

// NewGate returns a Gate. slotOf returns the slot of a key's object; if it is not ok, the object
// has no slot yet or is unknown to this replica, and the key is not admitted.
func NewGate[K comparable](f *Fence, slotOf func(key K) (slot int, ok bool)) *Gate[K] {
	return &Gate[K]{fence: f, slotOf: slotOf}
}

// Admit admits a key whose slot is held and open. Near the fence it waits, until the session is
// renewed or suspended, or ctx ends. The context that it returns carries the ownership. It ends
// when the slot is lost, when a hand-over has taken too long, and at the fence; the slot is not
// idle before done is called.
func (g *Gate[K]) Admit(ctx context.Context, key K) (context.Context, func(), bool) {
	for g.fence.awaitRenewal(ctx) {
		slot, ok := g.slotOf(key)
		if !ok {
			return nil, nil, false
		}
		owned, done, why := g.fence.admit(ctx, Ownership{kind: ofSlot, slot: slot})
		if why != Fenced {
			return owned, done, why == ""
		}
	}
	return nil, nil, false
}

// Group returns the slot of a key, so that slots take turns; keys without a slot are one group.
func (g *Gate[K]) Group(key K) int {
	if slot, ok := g.slotOf(key); ok {
		return slot
	}
	return -1
}

// LeaderGate admits keys of a runner while this session leads. Keys are dropped at other times, and
// also for a moment when a renewal of the leadership is late: enqueue them when the session begins
// to lead, and periodically.
type LeaderGate[K comparable] struct{ fence *Fence }

// NewLeaderGate returns a LeaderGate.
func NewLeaderGate[K comparable](f *Fence) LeaderGate[K] { return LeaderGate[K]{fence: f} }

// Admit admits every key while this session leads. Near the session's fence it waits, as
// Gate.Admit. The context that it returns carries the leadership, and ends with it.
func (g LeaderGate[K]) Admit(ctx context.Context, _ K) (context.Context, func(), bool) {
	if !g.fence.awaitRenewal(ctx) {
		return nil, nil, false
	}
	return g.fence.Lead(ctx)
}

// Admit begins work of a slot outside of a runner, like Gate.Admit, but never waits.
func (f *Fence) Admit(ctx context.Context, slot int) (context.Context, func(), bool) {
	owned, done, why := f.admit(ctx, Ownership{kind: ofSlot, slot: slot})
	return owned, done, why == ""
}

// Lead begins work of the leader. It never waits.
func (f *Fence) Lead(ctx context.Context) (context.Context, func(), bool) {
	owned, done, why := f.admit(ctx, Ownership{kind: ofLeader})
	return owned, done, why == ""
}

// admit begins work. why is "" if it has begun, Fenced if the fence has passed, and another reason
// if the ownership is not held and open.
func (f *Fence) admit(ctx context.Context, o Ownership) (owned context.Context, done func(), why Refusal) {
	h := f.stateOf(o)
	if h == nil {
		return nil, nil, Unowned
	}
	if f.passed(o.kind, pass) {
		return nil, nil, Fenced
	}
	owned, cancel := context.WithCancelCause(ctx)
	o, ok := h.admit(o, &cancel)
	if !ok {
		cancel(nil)
		return nil, nil, Lost
	}
	owned = telemetry.WithOwner(withOwnership(owned, o), telemetry.Owner{
		Replica: f.replica, Session: f.session, Slot: o.slot, Epoch: o.epoch, Leader: o.kind == ofLeader, Arrival: h.arrivalOf(o.epoch),
	})
	owned = runner.WithMayGoOn(owned, func() error {
		if why := h.mayGoOn(o.epoch); why != "" {
			return &RefusedError{What: "another step", Under: o.String(), Why: why}
		}
		return nil
	})
	return owned, func() {
		cancel(nil)
		h.end(&cancel, f.time.Now())
	}, ""
}

// Holds reports whether a slot is held and open, and is not being handed over.
func (f *Fence) Holds(slot int) bool {
	h := f.stateOf(Ownership{kind: ofSlot, slot: slot})
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isOpen()
}
