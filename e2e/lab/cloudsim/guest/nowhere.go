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
func (Nowhere) PowerOff(string, time.Duration) bool { return true }

// SetHealth does nothing.
func (Nowhere) SetHealth(string, Health) {}

// SetVolumes does nothing.
func (Nowhere) SetVolumes(string, []string) {}

// Run waits until ctx ends.
func (Nowhere) Run(ctx context.Context, _ Cloud) error {
	<-ctx.Done()
	return nil
}
