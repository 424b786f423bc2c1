package clusters

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
)

// Config is the configuration of a Host.
type Config struct {
	// Default is the host of VMs whose user data names no API server.
	Default guest.Host
	// Open returns the host for the cluster with an API server, nil for none. It is called once for
	// each server, with the first VM.
	Open func(server string) (guest.Host, error)
	Log  *slog.Logger
}

// Host passes each VM to the host of its cluster. New returns one; it is a guest.Host.
type Host struct {
	cfg Config

	mu       sync.Mutex
	byServer map[string]guest.Host
	byVM     map[string]guest.Host
	run      func(guest.Host) // set while Run runs
}

var _ guest.Host = (*Host)(nil)

// New returns a Host without VMs.
func New(cfg Config) *Host {
	return &Host{cfg: cfg, byServer: map[string]guest.Host{"": cfg.Default}, byVM: map[string]guest.Host{}}
}

// PowerOn starts a VM. One whose cluster is unknown is on, and does nothing.
func (h *Host) PowerOn(vm guest.VM) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byVM[vm.ID] == nil {
		h.byVM[vm.ID] = h.hostOf(vm)
	}
	h.byVM[vm.ID].PowerOn(vm)
}

// hostOf returns the host of a VM's cluster; h.mu is held.
func (h *Host) hostOf(vm guest.VM) guest.Host {
	if known := h.byServer[vm.Server]; known != nil {
		return known
	}
	opened, err := h.cfg.Open(vm.Server)
	if err != nil {
		h.cfg.Log.Error("A VM joins no cluster: that of its user data is not known", "vm", vm.Name, "server", vm.Server, "err", err)
		return guest.Nowhere{}
	}
	h.byServer[vm.Server] = opened
	if h.run != nil {
		h.run(opened)
	}
	return opened
}

// find returns the host of a VM that is on.
func (h *Host) find(id string) guest.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byVM[id]; known != nil {
		return known
	}
	return guest.Nowhere{}
}

// PowerOff ends a VM.
func (h *Host) PowerOff(id string, grace time.Duration) bool {
	off := h.find(id).PowerOff(id, grace)
	if off {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.byVM, id)
	}
	return off
}

// SetHealth changes a VM's health.
func (h *Host) SetHealth(id string, health guest.Health) { h.find(id).SetHealth(id, health) }

// SetVolumes sets a VM's volumes.
func (h *Host) SetVolumes(id string, volumes []string) { h.find(id).SetVolumes(id, volumes) }

// Run runs the hosts of all clusters until ctx ends, each from its first VM on.
func (h *Host) Run(ctx context.Context, cloud guest.Cloud) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return nil
	})
	h.mu.Lock()
	h.run = func(one guest.Host) { group.Go(func() error { return one.Run(ctx, cloud) }) }
	for _, one := range h.byServer {
		h.run(one)
	}
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.run = nil
	h.mu.Unlock()
	return group.Wait()
}
