package apitest

import (
	"context"
	"sync/atomic"
)

// LeaderGate admits keys while the test's session leads.
type LeaderGate struct{ Leads atomic.Bool }

// Admit implements runner.Gate.
func (g *LeaderGate) Admit(ctx context.Context, _ string) (context.Context, func(), bool) {
	return ctx, func() {}, g.Leads.Load()
}
