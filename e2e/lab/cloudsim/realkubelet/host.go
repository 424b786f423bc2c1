package realkubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

const (
	// pollInterval is how often a VM is polled: whether it is alive, whether its Node exists.
	pollInterval = 250 * time.Millisecond
	// endWithin bounds the end of a VM's processes.
	endWithin      = 30 * time.Second
	requestTimeout = 15 * time.Second
	workers        = 8
)

// Config configures a Host.
type Config struct {
	// Command starts a VM; the VM's flags are appended. Required.
	Command []string
	// Dir has a folder for each VM.
	Dir string
	// Volumes has a folder for each of the cloud's volumes, called by its ID, with its contents.
	// Required.
	Volumes string
	// Cluster is the API server that VMs join. Its credentials are not given to them.
	Cluster *rest.Config
	// Client has credentials for what a cloud controller manager does.
	Client kubernetes.Interface
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// Log is slog's default when nil.
	Log *slog.Logger
}

// Host runs kubelets. It is a guest.Host.
type Host struct {
	cfg    Config
	server *url.URL
	cloud  guest.Cloud // set when Run begins, before any step
	loop   *guest.Loop[string]

	mu   sync.Mutex
	byID map[string]*machine
}

var _ guest.Host = (*Host)(nil)

// New returns a Host without VMs.
func New(cfg Config) (*Host, error) {
	if len(cfg.Command) == 0 || cfg.Dir == "" || cfg.Volumes == "" || cfg.Cluster == nil || cfg.Client == nil {
		return nil, errors.New("realkubelet.Config: Command, Dir, Volumes, Cluster and Client are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	var err error
	for _, dir := range []*string{&cfg.Dir, &cfg.Volumes} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, fmt.Errorf("find the folders of VMs and volumes: %w", err)
		}
		if err = os.MkdirAll(*dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the folders of VMs and volumes: %w", err)
		}
	}
	server, err := url.Parse(cfg.Cluster.Host)
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("the cluster's server is %q; expected a URL", cfg.Cluster.Host)
	}
	h := &Host{cfg: cfg, server: server, byID: map[string]*machine{}}
	h.loop = guest.NewLoop(cfg.Clock, h.step)
	return h, nil
}

// Run steps VMs until ctx ends, and leaves them running.
func (h *Host) Run(ctx context.Context, cloud guest.Cloud) error {
	h.cloud = cloud
	if err := h.sweep(ctx); err != nil {
		return err
	}
	h.loop.Run(ctx, workers)
	return nil
}

// sweep ends the processes of VMs that the cloud has not switched on again: it was killed while it
// switched them off.
func (h *Host) sweep(ctx context.Context) error {
	folders, err := os.ReadDir(h.cfg.Dir)
	if err != nil {
		return fmt.Errorf("look for VMs of an earlier life: %w", err)
	}
	for _, folder := range folders {
		h.mu.Lock()
		_, on := h.byID[folder.Name()]
		h.mu.Unlock()
		if on {
			continue
		}
		if err := remove(ctx, h.cfg.Clock, filepath.Join(h.cfg.Dir, folder.Name()), 0); err != nil {
			return fmt.Errorf("end the VM %s of an earlier life: %w", folder.Name(), err)
		}
	}
	return nil
}

// PowerOn starts a VM.
func (h *Host) PowerOn(vm guest.VM) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[vm.ID] != nil {
		return
	}
	h.byID[vm.ID] = h.newMachine(vm)
	h.loop.Wake(vm.ID)
}

func (h *Host) newMachine(vm guest.VM) *machine {
	return &machine{VM: vm, dir: filepath.Join(h.cfg.Dir, vm.ID), health: vm.Health}
}

// PowerOff ends a VM. As long as it has a folder, it may have processes, also those of an earlier
// run of the cloud.
func (h *Host) PowerOff(id string, grace time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.byID[id]
	if m == nil {
		m = h.newMachine(guest.VM{ID: id})
		if _, err := os.Lstat(m.dir); errors.Is(err, os.ErrNotExist) {
			return true
		}
		h.byID[id] = m
	}
	if m.off && grace >= m.grace {
		return false
	}
	m.off, m.grace = true, grace
	if m.endGrace != nil { // Its graceful shutdown takes too long now.
		m.endGrace()
	}
	h.loop.Wake(id)
	return false
}

// SetVolumes attaches volumes to a VM and detaches the others.
func (h *Host) SetVolumes(id string, volumes []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.byID[id]; m != nil && !slices.Equal(m.volumes, volumes) {
		m.volumes = volumes
		h.loop.Wake(id)
	}
}

// SetHealth stops a VM or lets it continue.
func (h *Host) SetHealth(id string, health guest.Health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.byID[id]; m != nil && m.health != health {
		m.health = health
		h.loop.Wake(id)
	}
}

// step does what is due for a VM.
func (h *Host) step(ctx context.Context, id string) time.Duration {
	h.mu.Lock()
	m := h.byID[id]
	if m == nil {
		h.mu.Unlock()
		return guest.Never
	}
	off, health, volumes := m.off, m.health, m.volumes
	h.mu.Unlock()
	if off {
		return h.end(ctx, m)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := h.maintain(ctx, m, health, volumes); err != nil && ctx.Err() == nil {
		h.say(m, err.Error())
	}
	return pollInterval
}

// maintain starts the VM, stops it or lets it continue, observes its end, updates its volumes,
// and does the cloud's part of its joining.
func (h *Host) maintain(ctx context.Context, m *machine, health guest.Health, volumes []string) error {
	if m.dead || m.BootstrapToken == "" {
		if m.BootstrapToken == "" {
			h.say(m, "no bootstrap token in the user data: its kubelet cannot join and is not started")
		}
		return nil
	}
	if !m.started {
		if err := h.start(ctx, m); err != nil {
			return err
		}
	}
	if m.main.State().Gone() {
		return h.ended(m)
	}
	if frozen := health != guest.Healthy; frozen || frozen != m.frozen || m.freezing {
		if err := m.freeze(frozen); err != nil {
			return err
		}
	}
	if err := m.plug(volumes); err != nil {
		return err
	}
	if m.Joined {
		return nil
	}
	return h.initializeNode(ctx, m)
}

// ended reports the death of a VM whose processes have ended. If it has requested a reboot, the
// next step switches it on again instead.
func (h *Host) ended(m *machine) error {
	switch err := os.Remove(m.file(rebootFile)); {
	case err == nil:
		m.started, m.Resumed, m.frozen = false, false, false
		h.say(m, "reboots")
	case errors.Is(err, os.ErrNotExist):
		m.dead = true
		h.cloud.Died(m.ID, "its processes have ended; see "+m.file(consoleFile))
	default:
		return fmt.Errorf("reboot the VM: %w", err)
	}
	return nil
}

// say writes a line to the VM's console, unless it is the last one.
func (h *Host) say(m *machine, line string) {
	if line != m.said {
		m.said = line
		h.cloud.Console(m.ID, line)
	}
}

// end ends the VM's processes, forgets the VM, and reports that to the cloud.
func (h *Host) end(ctx context.Context, m *machine) time.Duration {
	if again := h.forget(ctx, m); again != guest.Never {
		return again
	}
	h.cloud.IsOff(m.ID)
	return guest.Never
}

// forget ends the VM's processes and forgets the VM, or returns when to retry.
func (h *Host) forget(ctx context.Context, m *machine) time.Duration {
	h.mu.Lock()
	grace := m.grace
	graceful, endGrace := context.WithCancel(ctx)
	defer endGrace()
	m.endGrace = endGrace
	h.mu.Unlock()
	err := remove(graceful, h.cfg.Clock, m.dir, grace)
	h.mu.Lock()
	defer h.mu.Unlock()
	m.endGrace = nil
	if err != nil {
		if graceful.Err() == nil {
			h.cfg.Log.Warn("A VM has not ended; trying again", "instance", m.ID, "err", err)
		}
		return pollInterval
	}
	delete(h.byID, m.ID)
	return guest.Never
}

// remove ends all processes of the VM in that folder and removes the folder.
func remove(ctx context.Context, clk clock.WithTicker, dir string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+endWithin)
	defer cancel()
	find := func() ([]supervise.ID, error) { return supervise.WithEnv(dirVariable, dir) }
	if _, err := supervise.End(ctx, clk, grace, find); err != nil {
		return fmt.Errorf("end the processes of the VM in %s: %w", dir, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of a VM: %w", err)
	}
	return nil
}
