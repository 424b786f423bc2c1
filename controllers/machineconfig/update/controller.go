package update

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update/candidates"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// gather is how long the events of Nodes are gathered for one pass over their pool.
const gather = 100 * time.Millisecond

// Config is the configuration of a Controller. All fields but Namespace, Most, Servers,
// NodeChanged, Counters, Gate, Share, Workers, Metrics and Tracer are required.
type Config struct {
	Pools configcache.Pools
	// Owns reports whether this replica may work on a pool now.
	Owns func(pool *v1alpha1.MachineConfigPool) bool
	// Fleet reads and writes pools in the target cluster from its API server; Written are those that
	// this process has written.
	Fleet   fleetclient.MachineConfigPoolsGetter
	Written *patch.Latest[*v1alpha1.MachineConfigPool]
	// Cluster has all Nodes where it has a name. The Nodes that pools select in another one are
	// watched for each pool.
	Cluster *target.Cluster
	// Most is how many bytes the written Nodes take at most that are remembered; 0 is no bound.
	Most int64
	// View has the objects of the control cluster in this replica's slots; where Cluster has a name
	// these are all of Namespace. Metadata reads others, from the API server, in Namespace; "" means
	// all.
	View      *objectcache.View
	Metadata  metadata.Interface
	Namespace string
	// IsNewSet reports whether a MachineSet has the template of its MachineDeployment.
	IsNewSet func(d *machinev1alpha1.MachineDeployment, set *machinev1alpha1.MachineSet) bool
	// Drains are those of this process, and Drain their settings.
	Drains *drainer.Drainer
	Drain  drain.Settings
	// Servers contains what this process knows of API servers.
	Servers target.Servers
	// Held reports whether deletions are held in a namespace; "" is that of pools that select Nodes by
	// labels.
	Held func(namespace string) (why string, held bool)
	// NodeChanged is called with each change of a Node that a pool of this replica selects; nil where
	// it is not needed. It must return soon.
	NodeChanged func(before, after *corev1.Node)
	// Prefix is that of the annotations of Nodes.
	Prefix v1alpha1.AnnotationPrefix
	Events events.EventRecorder
	// Counters are shared with other Controllers; nil are those of this one.
	Counters *Counters
	Clock    clock.WithTicker
	Gate     runner.Gate[types.NamespacedName]
	Share    *runner.Share
	Workers  int
	Metrics  *runner.Metrics
	Tracer   trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(
		c, "Namespace", "Most", "Drain", "Servers", "NodeChanged", "Counters", "Gate", "Share", "Workers", "Metrics", "Tracer",
	)
}

// Controller reconciles pools. Create one with New, before Pools, View and Cluster are filled.
type Controller struct {
	cfg     Config
	runner  runner.Queue
	pools   *patch.Committer[*v1alpha1.MachineConfigPool]
	nodes   *patch.Committer[*corev1.Node]
	watches *watches
	roots   *roots
	pace    *patch.Pace
	drains  *drains
	counts  *Counters
}

// New returns the controller, and registers its handlers. Errors: those of Config.Validate, and
// negative Workers.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, pace: patch.NewPace(statusPace, slowStatusPace), drains: newDrains(), counts: cmp.Or(cfg.Counters, NewCounters()),
		pools: patch.NewSharing(cfg.Written, func(string) patch.Patcher[*v1alpha1.MachineConfigPool] { return cfg.Fleet.MachineConfigPools() }),
		nodes: patch.NewSharing(patch.NewLatest[*corev1.Node]().AtMost(cfg.Most),
			func(string) patch.Patcher[*corev1.Node] { return cfg.Cluster.Client.CoreV1().Nodes() }),
		roots: newRoots(cfg.View, cfg.Metadata, cfg.Namespace, cfg.Cluster.Name != ""),
	}
	c.watches = newWatches(cfg.Cluster.Client.CoreV1().Nodes(), c.enqueue, c.nodeChanged)
	var err error
	c.runner, err = runner.QueueOf(cfg.Share, runner.Config[types.NamespacedName]{
		Name: runner.MachineConfigUpdate, LogKey: telemetry.KeyPool, Reconcile: c.reconcile, Workers: cfg.Workers, WorkersPerTenant: cfg.Workers,
		Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer, Root: c.root,
	})
	if err != nil {
		return nil, err
	}
	c.watch()
	return c, nil
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if c.cfg.Cluster.Name == "" {
		running.Go(func() { c.watches.run(ctx) })
	}
	c.runner.Run(ctx)
	for _, node := range c.drains.leaveAll() {
		c.cfg.Drains.Drop(c.ownerOf(node), aim)
	}
}

// root returns the UID of a pool, by which its traces are sampled.
func (c *Controller) root(key types.NamespacedName) types.UID {
	pool, known := c.cfg.Pools.Pool(key.Name)
	if !known {
		return ""
	}
	return pool.UID
}

// reconcile is one pass over a pool.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	pool, known := c.cfg.Pools.Pool(key.Name)
	if !known {
		return runner.Result{}, nil
	}
	telemetry.About(ctx, pool)
	defer c.leaveIfLost(key.Name)
	p := &pass{pool: c.pools.Newest(pool)}
	isKnown, err := c.decide(ctx, p)
	if err != nil || !isKnown {
		return runner.Result{}, err
	}
	errs := []error{c.assign(ctx, p)}
	wake, err := c.answer(ctx, p)
	errs = append(errs, err)
	again, err := c.taint(ctx, p)
	wake, errs = machinefacts.Sooner(wake, again), append(errs, err)
	again, err = c.report(ctx, p)
	wake, errs = machinefacts.Sooner(wake, again), append(errs, err)
	if p.world.Unsettled {
		wake = machinefacts.Sooner(wake, c.settledIn())
	}
	return runner.Result{RequeueAfter: wake}, errors.Join(errs...)
}

// pass contains what a pass has read.
type pass struct {
	pool    *v1alpha1.MachineConfigPool
	sight   sight
	world   candidates.World
	verdict candidates.Verdict
}

// decide observes the pool and decides: on what this process knows, and again on what the API
// server has if a Node is to be assigned a configuration, or a drain to begin. isKnown is false
// while the Nodes are not known; a pass follows when they are.
func (c *Controller) decide(ctx context.Context, p *pass) (isKnown bool, err error) {
	for _, isLive := range []bool{false, true} {
		ctx, span := telemetry.Step(ctx, telemetry.ObserveSpan)
		isKnown, err := c.observe(ctx, p, isLive)
		span.End()
		if err != nil || !isKnown {
			return false, err
		}
		p.verdict = candidates.Decide(p.world)
		telemetry.Decided(trace.SpanFromContext(ctx), verdictOf(p.verdict), func() (string, string) { return "", "" })
		if !p.verdict.ListLive {
			return true, nil
		}
	}
	return true, nil
}

// verdictOf names a verdict for traces.
func verdictOf(v candidates.Verdict) string {
	switch {
	case v.ListLive:
		return "ListNodes"
	case len(v.Assign) > 0:
		return "Assign"
	case len(v.Requests) > 0:
		return "AnswerRequests"
	case len(v.Taint)+len(v.Untaint) > 0:
		return "Taint"
	}
	return "Rest"
}

// readPool replaces the pool of a pass by what the API server has. isThere is false when it is
// gone.
func (c *Controller) readPool(ctx context.Context, p *pass) (isThere bool, err error) {
	live, err := c.cfg.Fleet.MachineConfigPools().Get(ctx, p.pool.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err //nolint:wrapcheck // it names the pool
	}
	p.pool = live
	return true, nil
}

// settledIn returns the time until what Nodes report may be acted on after an outage of an API
// server; 0 when nothing is known of one.
func (c *Controller) settledIn() time.Duration {
	fact := c.cfg.Servers.Under(c.cfg.Cluster)
	if fact.Away { // a check reports when it is back
		return 0
	}
	return max(fact.Settled().Sub(c.cfg.Clock.Now()), time.Millisecond)
}

// isUnsettled reports whether Nodes may be not Ready because of an API server.
func (c *Controller) isUnsettled() bool {
	fact := c.cfg.Servers.Under(c.cfg.Cluster)
	return fact.Away || c.cfg.Clock.Now().Before(fact.Settled())
}
