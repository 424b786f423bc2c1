package plugin

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Ownership is the permission under which the fleet sends a call. It proves nothing, and is for
// logs and tags.
type Ownership struct {
	// Replica and Session name the process.
	Replica, Session string
	// Slot and Epoch are those of the Machine, unless Leader is true.
	Slot  int
	Epoch int64
	// Leader is true for a call of the fleet's leader, which is about no slot.
	Leader bool
}

// OwnershipFrom returns the ownership under which the fleet has sent a call, from the context of
// the driver's method. ok is false when it is not known.
func OwnershipFrom(ctx context.Context) (o Ownership, ok bool) {
	received := received(ctx)
	o = Ownership{Replica: received.Get(replicaKey), Session: received.Get(sessionKey), Leader: received.Get(leaderKey) != ""}
	if o.Replica == "" {
		return Ownership{}, false
	}
	if o.Leader {
		return o, true
	}
	var err1, err2 error
	o.Slot, err1 = strconv.Atoi(received.Get(slotKey))
	o.Epoch, err2 = strconv.ParseInt(received.Get(epochKey), 10, 64)
	if err1 != nil || err2 != nil {
		return Ownership{}, false
	}
	return o, true
}

// ShareFrom returns the part of the fleet's work that the replica which sends a call has, from 0 to
// 1, from the context of the driver's method. ok is false when the replica has sent none, or none
// that is valid: it is of an earlier version.
func ShareFrom(ctx context.Context) (share float64, ok bool) {
	share, err := strconv.ParseFloat(received(ctx).Get(shareKey), 64)
	if err != nil || !(share >= 0 && share <= 1) { // also a NaN
		return 0, false
	}
	return share, true
}

// carrier is metadata of gRPC as the carrier of a trace context.
type carrier metadata.MD

// Get returns the first value of a key; "" when there is none.
func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set sets the value of a key.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys returns all keys.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// received returns the metadata of a call that a Server has received.
func received(ctx context.Context) carrier {
	md, _ := metadata.FromIncomingContext(ctx)
	return carrier(md)
}

// traced returns a context with the trace of the caller, so that spans of the driver belong to it.
func traced(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, received(ctx))
}

// timed returns a context by which driver.Now returns the time of the caller, if the call has it.
func timed(ctx context.Context, own time.Time) context.Context {
	sent, err := time.Parse(time.RFC3339Nano, received(ctx).Get(timeKey))
	if err != nil {
		return ctx
	}
	return driver.WithAhead(ctx, sent.Sub(own))
}

// withMetadata returns a context for a call that carries the ownership, if owned, share and time,
// if they are known, and the trace of ctx.
func withMetadata(ctx context.Context, o Ownership, owned bool, settings Settings) context.Context {
	sent := carrier{}
	propagation.TraceContext{}.Inject(ctx, sent)
	if settings.Share != nil {
		sent.Set(shareKey, strconv.FormatFloat(settings.Share(), 'g', 4, 64))
	}
	if settings.Now != nil {
		sent.Set(timeKey, settings.Now().UTC().Format(time.RFC3339Nano))
	}
	if owned {
		sent.Set(replicaKey, o.Replica)
		sent.Set(sessionKey, o.Session)
		if o.Leader {
			sent.Set(leaderKey, "true")
		} else {
			sent.Set(slotKey, strconv.Itoa(o.Slot))
			sent.Set(epochKey, strconv.FormatInt(o.Epoch, 10))
		}
	}
	return metadata.NewOutgoingContext(ctx, metadata.MD(sent))
}
