package render

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Config is the configuration of the controller. All fields but Namespace, Most, Extensions, Gate,
// Share, Workers, Metrics and Tracer are required.
type Config struct {
	// Client and Target read and write in the target cluster, without a cache.
	Client fleetclient.FleetV1alpha1Interface
	Target metadata.Interface
	// Machines and Control read in the control cluster, without a cache.
	Machines machineclient.MachineV1alpha1Interface
	Control  metadata.Interface
	// Namespace is the only namespace of the control cluster that is served; "" means all.
	Namespace string

	// Most is how many bytes the objects of a list of the target cluster take at most that are kept; 0
	// is no bound.
	Most int64

	Cache *configcache.Cache
	// View and Nodes have what may name RenderedMachineConfigs, as far as it is in this replica's
	// slots. Their changes end waits early.
	View  *objectcache.View
	Nodes *objectcache.Nodes
	// Written are the pools that this process has written.
	Written *patch.Latest[*v1alpha1.MachineConfigPool]
	// Prefix is that of the annotations of Nodes.
	Prefix v1alpha1.AnnotationPrefix
	// Extensions are the names of extensions that exist.
	Extensions []string
	// Replaces reports whether Nodes of a pool get a new configuration by being replaced.
	Replaces func(pool *v1alpha1.MachineConfigPool) bool

	Events    events.EventRecorder
	Deletions *deletion.Recorder
	Gate      runner.Gate[types.NamespacedName]
	Share     *runner.Share
	Clock     clock.WithTicker
	Workers   int
	Metrics   *runner.Metrics
	Tracer    trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Namespace", "Most", "Extensions", "Gate", "Share", "Workers", "Metrics", "Tracer")
}

// Controller renders pools. Create one with New.
type Controller struct {
	cfg      Config
	pools    *patch.Committer[*v1alpha1.MachineConfigPool]
	rendered *patch.Committer[*metav1.PartialObjectMetadata]
	queue    runner.Queue
	lists    *pacing.Rates[string] // of uses, in the cluster of a namespace

	mu       sync.Mutex
	changes  map[string]change    // of inputs that are not rendered yet, by pool
	verified map[string]types.UID // RenderedMachineConfigs whose content is that of their name
	swept    map[string]sweep     // by pool
	others   map[string]other     // by pool
	image    string               // spec.osImageURL of the ControllerConfig
}

// change is when inputs of a pool have changed.
type change struct{ first, last time.Time }

// New returns the controller and registers its handlers with the Cache. Errors: those of
// Config.Validate, and negative Workers.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, changes: map[string]change{}, verified: map[string]types.UID{}, swept: map[string]sweep{}, others: map[string]other{},
		lists: pacing.NewRates[string](listBurst, listInterval),
		pools: patch.NewSharing(cfg.Written, func(string) patch.Patcher[*v1alpha1.MachineConfigPool] { return cfg.Client.MachineConfigPools() }),
		rendered: patch.NewSharing(patch.NewLatest[*metav1.PartialObjectMetadata]().AtMost(cfg.Most),
			func(string) patch.Patcher[*metav1.PartialObjectMetadata] {
				return cfg.Target.Resource(renderedConfigs())
			}),
	}
	var err error
	c.queue, err = runner.QueueOf(cfg.Share, runner.Config[types.NamespacedName]{
		Name: runner.MachineConfigRender, LogKey: telemetry.KeyPool, Reconcile: c.reconcile, Workers: cfg.Workers, WorkersPerTenant: cfg.Workers,
		Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer, Root: c.uid,
	})
	if err != nil {
		return nil, err
	}
	c.watch()
	c.watchUses()
	return c, nil
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.queue.Run(ctx) }

// Enqueue has a pool reconciled soon.
func (c *Controller) Enqueue(pool string) { c.queue.Enqueue(types.NamespacedName{Name: pool}) }

func (c *Controller) uid(key types.NamespacedName) types.UID {
	if pool, known := c.cfg.Cache.Pool(key.Name); known {
		return pool.UID
	}
	return ""
}

// reconcile renders a pool and collects its garbage, or releases it if it is being deleted.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	if !c.cfg.Cache.Ready() {
		return runner.Result{}, nil // it is enqueued again when the cache is ready
	}
	cached, known := c.cfg.Cache.Pool(key.Name)
	if !known {
		c.forget(key.Name)
		return runner.Result{}, nil
	}
	pool := c.pools.Newest(cached)
	if c.cfg.Cache.StandingOfPool(pool) != configcache.Own {
		return c.leaveToOther(ctx, pool)
	}
	if pool.DeletionTimestamp != nil {
		return c.release(ctx, pool)
	}
	changed := c.changeOf(pool.Name)
	w := c.world(pool, changed)
	switch wait, due := merge.Due(w); {
	case wait > 0:
		return runner.Result{RequeueAfter: wait}, nil
	case due:
		var err error
		if pool, err = c.render(ctx, w); err != nil {
			return runner.Result{}, err
		}
		c.settled(pool.Name, changed)
	}
	return c.collect(ctx, pool) // also of a paused pool: what users delete has to be released
}

// world returns what is known without a request.
func (c *Controller) world(pool *v1alpha1.MachineConfigPool, changed change) merge.World {
	w := merge.World{
		Now: c.cfg.Clock.Now(), Pool: pool, Configs: c.cfg.Cache.MachineConfigs(), Verified: map[string]bool{},
		Fleet:       merge.Fleet{Extensions: c.cfg.Extensions},
		FirstChange: changed.first, LastChange: changed.last, Replaced: c.cfg.Replaces(pool),
	}
	if config := c.cfg.Cache.ControllerConfig(); config != nil {
		w.Fleet.OSImageURL = config.Spec.OSImageURL
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, about := range c.cfg.Cache.Rendered(pool.Name) {
		w.Rendered = append(w.Rendered, stub(about))
		w.Verified[about.Name] = c.verified[about.Name] == about.UID
	}
	return w
}

// stub returns a RenderedMachineConfig of which the content is not known.
func stub(about *metav1.PartialObjectMetadata) *v1alpha1.RenderedMachineConfig {
	return &v1alpha1.RenderedMachineConfig{ObjectMeta: about.ObjectMeta}
}

func (c *Controller) changeOf(pool string) change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes[pool]
}

// changed records that inputs of a pool have changed.
func (c *Controller) changed(pool string) {
	now := c.cfg.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.changes[pool]
	if ch.first.IsZero() {
		ch.first = now
	}
	ch.last = now
	c.changes[pool] = ch
}

// settled records that a pool was rendered with the changes up to one.
func (c *Controller) settled(pool string, upTo change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes[pool] == upTo {
		delete(c.changes, pool)
	}
}
