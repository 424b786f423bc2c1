package guest

import (
	"context"
	"time"
)

// Nowhere is a Host for a cloud without a cluster: its VMs are on, and do nothing.
type Nowhere struct{}

var _ Host = Nowhere{}

// PowerOn does nothing.
func (Nowhere) PowerOn(VM) {}

// PowerOff does nothing.
func (Nowhere) PowerOff(string, time.Duration) {}

// SetHealth does nothing.
func (Nowhere) SetHealth(string, Health) {}

// Run waits until ctx ends.
func (Nowhere) Run(ctx context.Context, _ Cloud) error {
	<-ctx.Done()
	return nil
}
