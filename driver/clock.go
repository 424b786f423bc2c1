package driver

import (
	"context"
	"time"
)

// aheadKey is the key of the value of a context.
type aheadKey struct{}

// WithAhead returns a context for calls of drivers that has by how much the clock of the control
// cluster is ahead of the wall clock of this process.
func WithAhead(ctx context.Context, ahead time.Duration) context.Context {
	return context.WithValue(ctx, aheadKey{}, ahead)
}

// Now returns the time of the control cluster, when the wall clock shows own. Drivers compare times
// on Machines with it, and with nothing else: the API server and other replicas have set these. In
// a call of a fleet of an earlier version, and of no fleet, it is own.
func Now(ctx context.Context, own time.Time) time.Time {
	ahead, _ := ctx.Value(aheadKey{}).(time.Duration)
	return own.Add(ahead)
}
