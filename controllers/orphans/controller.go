package orphans

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

const (
	// sweepsAtOnce is how many namespaces are swept at the same time, in the order in which they are
	// due. Each has the UIDs of its Machines in memory.
	sweepsAtOnce = 4
	// plansInPeriod is how often in a period it is checked whether the next sweeps are due.
	plansInPeriod = 4
	// shortestRetry is the shortest time after a failed sweep before the namespace is swept again. A
	// sweep lists whole accounts.
	shortestRetry = time.Minute
)

// plan is the key that enqueues the namespaces; it is no name of a namespace.
const plan = ""

// Config is the configuration of Controller. All fields but Namespace, Budget, Metrics and Tracer
// are required.
type Config struct {
	// Machines, Metadata, Secrets and Leases read and write in the control cluster, without a cache.
	// Machines must return a decode.ListError for objects that cannot be decoded.
	Machines machineclient.MachineV1alpha1Interface
	Metadata metadata.Interface
	Secrets  corev1client.SecretsGetter
	Leases   coordinationclient.LeasesGetter
	// Sweeper returns the Sweeper of a provider; ok is false when it has none.
	Sweeper func(provider string) (sweeper driver.Sweeper, ok bool)
	Targets target.Resolver
	Events  events.EventRecorder
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	// Ledger is the Lease with the deletions of the last hour.
	Ledger types.NamespacedName
	// ControlCluster returns the ID of the control cluster; "" while it is not known. Nothing is swept
	// then.
	ControlCluster func() string
	// Served reports, by live reads, whether no other manager serves a namespace.
	Served func(ctx context.Context, namespace string) (bool, error)
	// Held reports whether deletions in a namespace are held, and why.
	Held func(namespace string) (why string, held bool)
	// Budget has the deletion budgets of namespaces; with nil only Limit limits.
	Budget *deletion.Budget
	// Deletions records why resources are deleted.
	Deletions *deletion.Recorder
	// Gate admits the leader's work, with the leadership in the context.
	Gate runner.Gate[string]
	// Token returns another text each time.
	Token func() string
	// Period is the time between two sweeps of a namespace. Quarantine is the minimum age of a
	// suspicion that is acted upon; it is about a period if that is longer.
	Period, Quarantine time.Duration
	// Limit is how many orphans of a namespace may be deleted in an hour without an approval.
	Limit int
	// DryRun has sweeps do everything but delete.
	DryRun  bool
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set, and those that are
// outside of their range.
func (c Config) Validate() error {
	var err error
	if c.Period < 0 || c.Limit < 0 || c.Limit > decide.MaxLimit {
		err = fmt.Errorf("orphans.Config: expected a Period of more than 0 and a Limit of 0 to %d, got %s and %d",
			decide.MaxLimit, c.Period, c.Limit)
	}
	return errors.Join(required.Fields(c, "Namespace", "Budget", "Quarantine", "Limit", "Metrics", "Tracer"), err)
}

// Controller sweeps orphans while its session leads. New returns one.
type Controller struct {
	cfg     Config
	runner  *runner.Runner[string]
	ledger  *ledger
	metrics *orphanMetrics
	rules   rules
	led     atomic.Bool // the session has begun to lead, and no sweep was planned since

	unknown atomic.Bool // it was logged that the ID of the control cluster is not known

	mu      sync.Mutex
	planned time.Time
	seen    map[types.NamespacedName]sighting // MachineClasses with suspicions
	extra   map[string]extra                  // sweeps in addition to the usual ones, by namespace
	first   map[string]string                 // the key of the scope with which the next sweep begins, by namespace; where it is missing, any
}

// rules are the decisions of package orphans. Tests replace one to show that its absence is found.
type rules struct {
	page    int64         // size of pages of lists
	age     time.Duration // the minimum age of a suspicion that is acted upon
	next    func(record decide.Record, suspects []decide.Suspect, more int) decide.Record
	confirm func(facts decide.Facts) decide.Verdict

	due    func(suspects []decide.Suspect, before, after decide.Record, age time.Duration) time.Duration
	spaced func(wanted, last, spacing time.Duration) time.Duration
}

// newRules returns the rules of a configuration. A suspicion that was recorded at the end of one
// sweep is acted upon in the next one: that begins a little less than a period later.
func newRules(cfg Config) rules {
	return rules{
		page: decode.PageSize, age: max(cfg.Quarantine, cfg.Period-cfg.Period/10), next: decide.Record.Next, confirm: decide.Confirm,
		due: decide.Due, spaced: decide.Spaced,
	}
}

// sighting is when this process last wrote or first read a record.
type sighting struct {
	write string
	at    time.Time
}

// New returns a Controller that sweeps from Run on. Errors: those of Config.Validate.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	o := &Controller{
		cfg:     cfg,
		rules:   newRules(cfg),
		metrics: newOrphanMetrics(cfg.Clock, cfg.Period),
		seen:    map[types.NamespacedName]sighting{},
		extra:   map[string]extra{},
		first:   map[string]string{},
	}
	o.ledger = &ledger{leases: cfg.Leases, key: cfg.Ledger, clock: cfg.Clock, token: cfg.Token}
	var err error
	o.runner, err = runner.New(runner.Config[string]{
		Name: runner.Orphans, LogKey: telemetry.KeyNamespace, Reconcile: o.reconcile, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics,
		Tracer: cfg.Tracer, Workers: sweepsAtOnce + 1, WorkersPerTenant: sweepsAtOnce, Tenant: tenantOf,
		MinBackoff: min(shortestRetry, cfg.Period), MaxBackoff: cfg.Period,
	})
	return o, err
}

// tenantOf returns one tenant for all sweeps, and another for the plan, which so waits for no
// sweep.
func tenantOf(key string) string {
	if key == plan {
		return plan
	}
	return runner.Orphans
}

// Collectors return the metrics.
func (o *Controller) Collectors() []prometheus.Collector { return o.metrics.collectors() }

// Led begins to sweep. It is called when the session begins to lead, and returns at once.
func (o *Controller) Led() {
	o.led.Store(true)
	o.runner.Enqueue(plan)
}

// Run sweeps until ctx ends. The ticker plans again what the Gate has dropped while a renewal of
// the leadership was late.
func (o *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { o.runner.Run(ctx) })
	ticker := o.cfg.Clock.NewTicker(max(o.cfg.Period/plansInPeriod, time.Nanosecond))
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C():
			o.runner.Enqueue(plan)
		case <-ctx.Done():
		}
	}
	running.Wait()
}

// reconcile sweeps a namespace, or plans the next sweeps.
func (o *Controller) reconcile(ctx context.Context, namespace string) (runner.Result, error) {
	switch id := o.cfg.ControlCluster(); {
	case id == "":
		o.metrics.swept(resultSkipped)
		if !o.unknown.Swap(true) {
			klog.FromContext(ctx).Info("The ID of the control cluster is not known; orphans are not swept before it is")
		}
		return runner.Result{RequeueAfter: min(shortestRetry, o.cfg.Period)}, nil
	case namespace == plan:
		return runner.Result{}, o.plan(ctx)
	default:
		again, err := o.sweep(ctx, namespace, id)
		return runner.Result{RequeueAfter: again}, err
	}
}

// plan enqueues the namespaces with MachineClasses when a period has passed, each at its own time
// in the period, and sooner when the session has begun to lead: leaders that change often must not
// prevent the sweeps.
func (o *Controller) plan(ctx context.Context) error {
	window, now := o.cfg.Period, o.cfg.Clock.Now()
	led := o.led.Swap(false)
	if led {
		window /= plansInPeriod
	}
	o.mu.Lock()
	due := led || now.Sub(o.planned) >= o.cfg.Period
	o.mu.Unlock()
	if !due {
		return nil
	}
	namespaces, err := o.namespaces(ctx)
	if err != nil {
		if led {
			o.led.Store(true)
		}
		return err
	}
	for namespace, requested := range namespaces {
		o.runner.EnqueueAfter(namespace, offset(namespace, window))
		if requested {
			o.Requested(namespace)
		}
	}
	o.metrics.keepOnly(namespaces)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.planned = now
	isGone := func(namespace string) bool { _, has := namespaces[namespace]; return !has }
	maps.DeleteFunc(o.seen, func(class types.NamespacedName, _ sighting) bool { return isGone(class.Namespace) })
	maps.DeleteFunc(o.extra, func(namespace string, _ extra) bool { return isGone(namespace) })
	maps.DeleteFunc(o.first, func(namespace, _ string) bool { return isGone(namespace) })
	return nil
}

// offset returns the time of a namespace in a window.
func offset(namespace string, window time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace)) // it never fails
	return time.Duration(float64(window) * float64(h.Sum32()) / (1 << 32))
}

// namespaces returns those with MachineClasses, by a live list, and whether one of them requests a
// sweep.
func (o *Controller) namespaces(ctx context.Context) (map[string]bool, error) {
	found := map[string]bool{}
	classes := o.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machineclasses")).Namespace(o.cfg.Namespace)
	err := decode.EachObject(ctx, "the MachineClasses", metav1.ListOptions{Limit: o.rules.page}, classes.List,
		func(class *metav1.PartialObjectMetadata) {
			found[class.Namespace] = found[class.Namespace] || class.Annotations[v1alpha1.AnnotationSweepRequested] != ""
		})
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(2).Info("Planned sweeps of orphans", "namespaces", len(found))
	return found, nil
}
