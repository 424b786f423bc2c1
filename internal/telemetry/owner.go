package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/klog/v2"
)

// Owner is the ownership under which the work of a span is done.
type Owner struct {
	Replica, Session string
	Slot             int
	Epoch            int64
	// Leader is true for work of the leader, which has no slot.
	Leader bool
	// Arrival is the W3C traceparent of the hand-over or take-over by which the slot has come; "" when
	// it is not known.
	Arrival string
}

type ownerKey struct{}

// WithOwner returns a context whose spans name the owner, and whose logs its slot and epoch: all
// logs of a process name its replica.
func WithOwner(ctx context.Context, o Owner) context.Context {
	ctx = context.WithValue(ctx, ownerKey{}, o)
	log := klog.FromContext(ctx)
	if o.Leader {
		return klog.NewContext(ctx, log.WithValues("leader", true))
	}
	return klog.NewContext(ctx, log.WithValues("slot", o.Slot, "epoch", o.Epoch))
}

// OwnerFrom returns the owner in ctx; ok is false when there is none.
func OwnerFrom(ctx context.Context) (o Owner, ok bool) {
	o, ok = ctx.Value(ownerKey{}).(Owner)
	return o, ok
}

// OwnerAttributes are the attributes of a span for the owner in ctx; none when there is no owner.
func OwnerAttributes(ctx context.Context) []attribute.KeyValue {
	o, ok := OwnerFrom(ctx)
	if !ok {
		return nil
	}
	attributes := []attribute.KeyValue{ReplicaKey.String(o.Replica), SessionKey.String(o.Session)}
	if o.Leader {
		return append(attributes, leaderKey.Bool(true))
	}
	return append(attributes, SlotKey.Int(o.Slot), EpochKey.Int64(o.Epoch))
}
