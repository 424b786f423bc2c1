package simkubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
)

const (
	// leaseInterval is half of the time after which the node lifecycle controller considers a Node
	// unreachable (50 s), and less than the 40 s of the Lease's duration. A kubelet's 10 s would be
	// the main load of an API server.
	leaseInterval = 25 * time.Second
	// reportInterval is how often a Node's status is reported when it has not changed.
	reportInterval = 5 * time.Minute
	// resumeWithin is how fast all VMs are reported again after this process has restarted.
	resumeWithin = 5 * time.Second
	// requestTimeout bounds each request.
	requestTimeout = 15 * time.Second

	workers = 32
)

// Config contains the parameters of a Host.
type Config struct {
	// Client has credentials with all rights on Nodes, Leases and pods. It should not limit its own
	// rate.
	Client kubernetes.Interface
	// Prove sends one request that is authenticated by a bootstrap token; an error means that the
	// token is not valid.
	Prove func(ctx context.Context, token string) error
	// Workers is how many VMs are reported at a time, as many pods, and twice as many that join; 32
	// when 0.
	Workers int
	// Daemons has the VMs play machine-config-daemon.
	Daemons bool
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// Log is slog's default when nil.
	Log *slog.Logger
}

// Host simulates kubelets. It is a guest.Host.
type Host struct {
	cfg   Config
	cloud guest.Cloud // set when Run begins, before any step
	// VMs join in a separate loop, so that a thousand that boot at once do not delay the reports
	// of others.
	joins *guest.Loop[string]
	alive *guest.Loop[string]
	pods  *guest.Loop[string]
	nodes cache.SharedIndexInformer
	bound cache.SharedIndexInformer // the pods that have a Node

	mu     sync.Mutex
	byID   map[string]*vm
	byName map[string]*vm          // the VM that reports for a Node of that name: the last one that was switched on
	ending map[types.UID]time.Time // pods: when their deletion was first seen

	versionMu sync.Mutex
	version   string // of the API server
}

var _ guest.Host = (*Host)(nil)

// vm is a VM that is on. The fields of the first group are guarded by Host.mu, those of the second
// are only used by the steps of this VM, which never overlap: it is in one loop at a time.
type vm struct {
	health  guest.Health
	off     bool
	joined  bool
	nodeUID types.UID // "" until the Node is known
	gone    bool      // the Node was deleted

	guest.VM
	since       time.Time // of the first attempt to join
	attempts    int
	lastFailure string
	proved      bool // the bootstrap token worked
	lease       *coordinationv1.Lease
	renewAt     time.Time
	reportAt    time.Time

	update          update
	componentsSince time.Time // since when the critical components of a Node that was updated start; zero when they do not

	daemon daemon

	volumes volumes
}

// New returns a Host without VMs.
func New(cfg Config) (*Host, error) {
	if cfg.Client == nil || cfg.Prove == nil {
		return nil, errors.New("simkubelet.Config: Client and Prove are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Workers == 0 {
		cfg.Workers = workers
	}
	h := &Host{cfg: cfg, byID: map[string]*vm{}, byName: map[string]*vm{}, ending: map[types.UID]time.Time{}}
	h.joins = guest.NewLoop(cfg.Clock, h.stepJoin)
	h.alive = guest.NewLoop(cfg.Clock, h.stepAlive)
	h.pods = guest.NewLoop(cfg.Clock, h.stepPod)
	if err := h.watch(); err != nil {
		return nil, err
	}
	return h, nil
}

// Run simulates kubelets until ctx ends. While the API server is unreachable, no VM joins and no
// Node is reported.
func (h *Host) Run(ctx context.Context, cloud guest.Cloud) error {
	h.cloud = cloud
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { h.nodes.RunWithContext(ctx) })
	wg.Go(func() { h.bound.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), h.nodes.HasSynced, h.bound.HasSynced)
	wg.Go(func() { h.joins.Run(ctx, 2*h.cfg.Workers) })
	wg.Go(func() { h.alive.Run(ctx, h.cfg.Workers) })
	wg.Go(func() { h.pods.Run(ctx, h.cfg.Workers) })
	return nil
}

// PowerOn starts a VM.
func (h *Host) PowerOn(what guest.VM) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[what.ID] != nil {
		return
	}
	v := &vm{VM: what, health: what.Health, joined: what.Joined}
	h.byID[what.ID] = v
	h.byName[what.Name] = v
	h.wake(v)
}

// PowerOff ends a VM. A simulated VM needs no grace.
func (h *Host) PowerOff(id string, _ time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.byID[id]
	if v == nil {
		return true
	}
	v.off = true
	delete(h.byID, id)
	if h.byName[v.Name] == v {
		delete(h.byName, v.Name)
	}
	return true
}

// SetHealth changes a VM's health. Pods that waited for a better one continue.
func (h *Host) SetHealth(id string, health guest.Health) {
	h.mu.Lock()
	v := h.byID[id]
	changed := v != nil && v.health != health
	if changed {
		v.health = health
		h.wake(v)
	}
	h.mu.Unlock()
	if changed {
		h.wakePods(v.Name)
	}
}

// SetVolumes does nothing: a simulated kubelet uses its Node's status.
func (h *Host) SetVolumes(string, []string) {}

// wake makes a VM due in the loop that it is in. h.mu is held.
func (h *Host) wake(v *vm) {
	if v.joined {
		h.alive.Wake(v.ID)
	} else {
		h.joins.Wake(v.ID)
	}
}

// working returns the VM with that ID and its health, if whether it has joined is as requested. It
// is nil for a VM that is off, suspended, or has lost its Node.
func (h *Host) working(id string, joined bool) (*vm, guest.Health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.byID[id]
	if v == nil || v.joined != joined || v.gone || v.health == guest.Frozen {
		return nil, guest.Frozen
	}
	return v, v.health
}

// stepJoin does what is due for a VM that has not joined.
func (h *Host) stepJoin(ctx context.Context, id string) time.Duration {
	if v, health := h.working(id, false); v != nil {
		return h.join(ctx, v, health)
	}
	return guest.Never
}

// stepAlive does what is due for a VM that has joined.
func (h *Host) stepAlive(ctx context.Context, id string) time.Duration {
	if v, health := h.working(id, true); v != nil {
		return h.keepAlive(ctx, v, health)
	}
	return guest.Never
}

// hasJoined moves a VM from one loop to the other.
func (h *Host) hasJoined(v *vm, line string) {
	h.mu.Lock()
	v.joined = true
	h.wake(v)
	h.mu.Unlock()
	h.cloud.Joined(v.ID, line)
	h.wakePods(v.Name)
}

// setNode records which Node the VM reports for.
func (h *Host) setNode(v *vm, node *corev1.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v.nodeUID = node.UID
}

// lostNode ends the reports for a Node that was deleted.
func (h *Host) lostNode(v *vm) {
	h.mu.Lock()
	first := !v.gone && !v.off
	v.gone = true
	h.mu.Unlock()
	if first {
		h.cloud.Console(v.ID, "the Node was deleted; a kubelet does not register it again")
	}
}

// serverVersion reads the version of the API server, once.
func (h *Host) serverVersion() (string, error) {
	h.versionMu.Lock()
	defer h.versionMu.Unlock()
	if h.version == "" {
		info, err := h.cfg.Client.Discovery().ServerVersion()
		if err != nil {
			return "", fmt.Errorf("read the version of the API server: %w", err)
		}
		h.version = info.GitVersion
	}
	return h.version, nil
}
