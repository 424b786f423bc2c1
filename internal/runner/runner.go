package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Back-off of failing keys, unless Config has another. Most failures are conflicts caused by a
// cache that is slightly out of date, so the first step is short. The maximum is short enough that
// a key which keeps failing is still tried regularly.
const (
	DefaultMinBackoff = 20 * time.Millisecond
	DefaultMaxBackoff = time.Minute
)

// Result specifies when a key that was reconciled without an error is reconciled again.
type Result struct {
	// RequeueAfter is the time until then; 0 means when an event enqueues the key.
	RequeueAfter time.Duration
}

// Gate decides whether a key may be reconciled now. The runner calls done, once, when the work of
// an admitted key has ended. owned carries the permission under which the work acts; it ends with
// the permission.
type Gate[K comparable] interface {
	Admit(ctx context.Context, key K) (owned context.Context, done func(), ok bool)
}

// Grouper is a Gate that assigns keys to groups, which take turns.
type Grouper[K comparable] interface {
	Gate[K]
	Group(key K) int
}

// Notifier is a Gate of one Runner that enqueues keys which it has refused, when it may admit them.
// New passes it the function, which may be called from then on.
type Notifier[K comparable] interface {
	Gate[K]
	Notify(enqueue func(key K))
}

// Open is the gate that admits every key.
type Open[K comparable] struct{}

// Admit admits every key.
func (Open[K]) Admit(ctx context.Context, _ K) (context.Context, func(), bool) {
	return ctx, func() {}, true
}

// TenantsAtOnce is how many tenants can each have their maximum number of workers at the same time.
// What is slow for one tenant, such as a cloud that never answers, occupies a worker for each of
// its keys; a few such tenants do not occupy all workers.
const TenantsAtOnce = 4

// Config describes a Runner. Name and Reconcile are required.
type Config[K comparable] struct {
	// Name in metrics, logs and spans.
	Name Name
	// CreatesInNamespace reports whether all that Reconcile creates are objects of the namespace of
	// its key. That a namespace which is being deleted refuses them then ends a pass in order: the
	// objects of the key are deleted next.
	CreatesInNamespace bool
	// LogKey is the name of the key in logs; default "key".
	LogKey string
	// Reconcile brings the object of one key closer to its desired state.
	Reconcile func(ctx context.Context, key K) (Result, error)
	// Panicked is called when a pass has panicked, with the context of the pass, before the key is
	// tried again; nil if no function has to be called. A panic of Panicked itself is dropped.
	Panicked func(ctx context.Context, key K, fault *PanicError)
	// Workers is how many keys are reconciled at the same time; default 1. A worker is a goroutine
	// that runs while there are keys, and a key occupies it for at most one request to a cloud.
	Workers int
	// WorkersPerTenant is how many keys of one tenant are reconciled at the same time. The others wait
	// without a worker, so that a tenant whose keys take long does not delay others. Default: Workers
	// divided by TenantsAtOnce, rounded up; unlimited if all keys belong to one tenant.
	WorkersPerTenant int
	// Tenant of a key: tenants take turns, too. Default: the namespace of a types.NamespacedName, else
	// all are one.
	Tenant func(key K) string
	// Gate admits each key before it is reconciled; default Open.
	Gate Gate[K]
	// Group of a key: groups take turns, so that a lot of work in one does not delay another. Default:
	// that of the Gate if it is a Grouper, else all are one.
	Group func(key K) int
	// Gather is the time for which EnqueueSoon gathers what happens to a key; 0 means not at all.
	Gather time.Duration
	// MinBackoff and MaxBackoff bound the wait after failures, which doubles each time.
	MinBackoff, MaxBackoff time.Duration
	// Clock for waits, of which that of the process is used; default the real one.
	Clock clock.WithTicker
	// Metrics are shared by the runners of a process; nil means none.
	Metrics *Metrics
	// Tracer for the span of each reconcile; nil means none.
	Tracer trace.Tracer
	// Root returns the UID of the root of a key's object, by which traces are sampled, or "" while it
	// is not known. It is called only where there are traces, and must not send requests. With nil,
	// the key takes its place.
	Root func(key K) types.UID
	// Stage returns the stage that a key's object is in, whose trace its passes are in; the zero Stage
	// if each pass is a trace. As Root.
	Stage func(key K) telemetry.Stage
}

// Validate returns an error that names the required fields that are not set, and those that are
// negative.
func (c Config[K]) Validate() error {
	var err error
	if c.Workers < 0 || c.WorkersPerTenant < 0 {
		err = fmt.Errorf("runner %s: Workers and WorkersPerTenant must not be negative, got %d and %d", c.Name, c.Workers, c.WorkersPerTenant)
	}
	return errors.Join(required.Fields(
		c, "LogKey", "Panicked", "Workers", "WorkersPerTenant", "Tenant", "Gate", "Group", "MinBackoff", "MaxBackoff", "Clock", "Metrics",
		"Tracer",
		"Root", "Stage", "Gather",
	), err)
}

// Runner is a queue of keys with workers. Create it with New.
type Runner[K comparable] struct {
	cfg     Config[K]
	queue   workqueue.TypedRateLimitingInterface[K]
	waiting *fairQueue[K] // stores the keys of queue
	workers workers
	traces  bool
	ending  *pacing.Rates[string] // how often it is logged that a tenant's namespace is being deleted
	begun   *pacing.Rates[K]      // passes of keys that are gathered

	mu      sync.Mutex
	failing map[K]time.Time // since when
	waits   map[K]telemetry.Wait
	inWork  map[K][]func() bool // asked when the pass of a key has ended
}

// New returns a Runner, which accepts keys at once and reconciles them when Run is called. Errors:
// those of Config.Validate.
func New[K comparable](cfg Config[K]) (*Runner[K], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Workers = max(cfg.Workers, 1)
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff = DefaultMinBackoff
	}
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = DefaultMaxBackoff
	}
	if cfg.LogKey == "" {
		cfg.LogKey = "key"
	}
	if cfg.Gate == nil {
		cfg.Gate = Open[K]{}
	}
	if cfg.Group == nil {
		cfg.Group = groupOf(cfg.Gate)
	}
	cfg.WorkersPerTenant = workersPerTenant(cfg)
	if cfg.Tenant == nil {
		cfg.Tenant = namespaceOf[K]
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	cfg.Clock = apianswers.Own(cfg.Clock)
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	r := &Runner[K]{
		cfg:     cfg,
		waiting: newFairQueue(cfg.Tenant, cfg.Group, cfg.WorkersPerTenant, cfg.Clock),
		traces:  telemetry.Traces(cfg.Tracer),
		failing: map[K]time.Time{},
		waits:   map[K]telemetry.Wait{},
		inWork:  map[K][]func() bool{},
		ending:  pacing.NewRates[string](1, endingInterval),
		begun:   pacing.NewRates[K](1, cfg.Gather),
	}
	r.queue = r.newQueue()
	r.workers.most, r.workers.queued = cfg.Workers, r.queue.Len
	if notifier, ok := cfg.Gate.(Notifier[K]); ok {
		notifier.Notify(r.Enqueue)
	}
	return r, nil
}

func groupOf[K comparable](gate Gate[K]) func(K) int {
	if grouper, ok := gate.(Grouper[K]); ok {
		return grouper.Group
	}
	return func(K) int { return 0 }
}

// workersPerTenant returns how many keys of one tenant are reconciled at the same time.
func workersPerTenant[K comparable](cfg Config[K]) int {
	var key K
	_, named := any(key).(types.NamespacedName)
	if cfg.WorkersPerTenant > 0 || cfg.Tenant == nil && !named {
		return cfg.WorkersPerTenant
	}
	return (cfg.Workers + TenantsAtOnce - 1) / TenantsAtOnce
}

func namespaceOf[K comparable](key K) string {
	if named, ok := any(key).(types.NamespacedName); ok {
		return named.Namespace
	}
	return ""
}

func (r *Runner[K]) newQueue() workqueue.TypedRateLimitingInterface[K] {
	queue := workqueue.TypedQueueConfig[K]{Name: r.cfg.Name, Clock: r.cfg.Clock, Queue: r.waiting}
	if r.cfg.Metrics != nil {
		queue.MetricsProvider = r.cfg.Metrics.queues
		r.cfg.Metrics.watch(r.cfg.Name, r.cfg.Workers, r.oldestFailure, r.waiting)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](r.cfg.MinBackoff, r.cfg.MaxBackoff)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{
		Name: r.cfg.Name, Clock: r.cfg.Clock, MetricsProvider: queue.MetricsProvider,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Name: r.cfg.Name, Clock: r.cfg.Clock, MetricsProvider: queue.MetricsProvider,
			Queue: workqueue.NewTypedWithConfig(queue),
		}),
	})
}

// Run works on keys until ctx ends, then finishes those in work and returns. It is called once.
func (r *Runner[K]) Run(ctx context.Context) {
	r.workers.next = func(taken func()) bool { return r.next(ctx, taken) }
	r.workers.start()
	<-ctx.Done()
	r.queue.ShutDown()
	r.workers.group.Wait()
}

// next takes one key, calls taken, and reconciles the key. It returns false if the queue has been
// shut down.
func (r *Runner[K]) next(ctx context.Context, taken func()) bool {
	key, down := r.queue.Get()
	if down {
		return false
	}
	taken()
	r.begin(key)
	defer func() {
		r.end(key)
		r.queue.Done(key)
		r.waiting.done(key)
	}()
	if ctx.Err() != nil {
		return true
	}
	owned, done, ok := r.cfg.Gate.Admit(ctx, key)
	if !ok {
		r.Drop(key)
		return true
	}
	defer done()
	result, err := r.reconcile(owned, key)
	switch {
	case err == nil:
		r.forget(key)
		if result.RequeueAfter > 0 {
			r.queue.AddAfter(key, result.RequeueAfter)
		}
	case ctx.Err() != nil: // shutting down: the next holder continues from the objects
	case owned.Err() != nil: // the next holder of the key continues; if that is this replica, the key is enqueued again
		r.forget(key)
	case NotOurs(err): // the key may still be this replica's, and no event reports otherwise: the Gate decides at the next attempt
		r.queue.AddRateLimited(key)
	default:
		r.fail(key)
		r.queue.AddRateLimited(key)
	}
	return true
}

// reconcile runs one key inside its span, its logger and its metrics.
func (r *Runner[K]) reconcile(ctx context.Context, key K) (result Result, err error) {
	start := r.cfg.Clock.Now()
	ctx, pass := r.trace(ctx, key, start)
	span := pass.span
	defer span.End()
	defer func() { r.waited(ctx, key, pass, start) }()
	ctx = r.withLogger(ctx, key)
	logger := klog.FromContext(ctx)
	defer func() {
		if p := recover(); p != nil {
			fault := &PanicError{Value: p, Stack: debug.Stack()}
			err = fault
			r.panicked(ctx, key, fault)
		}
		if wait, waits := waitOf(err); waits {
			logger.V(2).Info("Reconcile waits", "reason", err.Error(), "wait", wait.String())
			result, err = Result{RequeueAfter: wait}, nil
		}
		if r.cfg.CreatesInNamespace && isRefusedByEnding(err) {
			r.logEnding(ctx, key, err)
			result, err = Result{RequeueAfter: r.cfg.MaxBackoff}, nil
		}
		r.cfg.Metrics.observe(ctx, r.cfg.Name, r.cfg.Clock.Since(start), result, err)
		switch {
		case err == nil, errors.Is(err, context.Canceled), NotOurs(err):
		case isConflict(err):
			telemetry.Conflict(span)
			logger.V(4).Info("Reconcile hit a conflict; retrying", "err", err)
		default:
			telemetry.Fail(span, withoutStack(err))
			logger.Error(err, "Reconcile failed; retrying")
		}
	}()
	r.cfg.Metrics.active(r.cfg.Name, 1)
	defer r.cfg.Metrics.active(r.cfg.Name, -1)
	return r.cfg.Reconcile(ctx, key)
}

// withLogger returns a context whose logs name the controller, the key and the trace of a pass.
func (r *Runner[K]) withLogger(ctx context.Context, key K) context.Context {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("controller", r.cfg.Name))
	if id, sampled := telemetry.TraceID(ctx); sampled {
		ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues(telemetry.KeyTraceID, id))
	}
	if named, ok := any(key).(types.NamespacedName); ok {
		return telemetry.WithObject(ctx, r.cfg.LogKey, klog.KRef(named.Namespace, named.Name))
	}
	return telemetry.WithObject(ctx, r.cfg.LogKey, key)
}

// traced is a pass in a trace.
type traced struct {
	span  trace.Span
	root  string
	stage telemetry.Stage
	waits string // what the object waits for when the pass has ended
}

type tracedKey struct{}

// trace starts the span of a pass that begins now.
func (r *Runner[K]) trace(ctx context.Context, key K, now time.Time) (context.Context, *traced) {
	if !r.traces {
		return ctx, &traced{span: trace.SpanFromContext(ctx)}
	}
	name := fmt.Sprint(key)
	pass := &traced{root: name}
	if r.cfg.Root != nil {
		pass.root = string(r.cfg.Root(key))
	}
	if r.cfg.Stage != nil {
		pass.stage = r.cfg.Stage(key)
	}
	queued := r.waiting.since(key)
	if queued.IsZero() || queued.After(now) {
		queued = now
	}
	ctx, pass.span = telemetry.StartPass(ctx, r.cfg.Tracer, telemetry.Pass{
		Controller: r.cfg.Name, Key: name, Root: pass.root, Stage: pass.stage, Queued: queued, Began: now,
	})
	if pass.span.IsRecording() {
		ctx = context.WithValue(ctx, tracedKey{}, pass)
	}
	return ctx, pass
}

// waited writes the span of what the object of a key has waited for, when it waits for something
// else after a pass. What began in a stage is in the trace of that stage.
func (r *Runner[K]) waited(ctx context.Context, key K, pass *traced, began time.Time) {
	if !r.traces {
		return
	}
	r.mu.Lock()
	last, was := r.waits[key]
	switch {
	case was && last.For == pass.waits && last.Stage == pass.stage:
		r.mu.Unlock()
		return
	case pass.waits == "" || !pass.span.IsRecording():
		delete(r.waits, key)
	default:
		r.waits[key] = telemetry.Wait{Interval: telemetry.Interval{From: r.cfg.Clock.Now()}, Stage: pass.stage, For: pass.waits}
	}
	r.mu.Unlock()
	if was {
		last.To = began
		telemetry.Waited(ctx, r.cfg.Tracer, pass.root, last)
	}
}

// panicked calls Config.Panicked with a panic, if the function is set.
func (r *Runner[K]) panicked(ctx context.Context, key K, fault *PanicError) {
	defer func() { _ = recover() }() // the panic of the pass is the one that is logged
	if r.cfg.Panicked != nil {
		r.cfg.Panicked(ctx, key, fault)
	}
}

func (r *Runner[K]) fail(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.failing[key]; !known {
		r.failing[key] = r.cfg.Clock.Now()
	}
}

func (r *Runner[K]) forget(key K) {
	r.queue.Forget(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failing, key)
}

// Drop forgets what is known of a key that is another holder's now, or has none, or whose object is
// gone.
func (r *Runner[K]) Drop(key K) {
	r.forget(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waits, key)
}

// oldestFailure returns how long the key that has been failing for longest has been failing, and
// how many keys fail.
func (r *Runner[K]) oldestFailure() (age time.Duration, keys int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, since := range r.failing {
		age = max(age, r.cfg.Clock.Since(since))
	}
	return age, len(r.failing)
}

// logEnding logs that a pass has ended because the namespace of its key is being deleted: once for
// the namespace.
func (r *Runner[K]) logEnding(ctx context.Context, key K, err error) {
	namespace, now := r.cfg.Tenant(key), r.cfg.Clock.Now()
	if r.ending.Wait(namespace, now) > 0 {
		return
	}
	r.ending.Count(namespace, now)
	klog.FromContext(ctx).Info("Namespace is being deleted and accepts no objects; none is created in it any more",
		telemetry.KeyNamespace, namespace, "err", err)
}
