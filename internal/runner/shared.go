package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

// Queue has the keys of a controller: its own Runner, or its part of a shared one.
type Queue interface {
	Enqueue(key types.NamespacedName)
	// EnqueueAfter is that of Runner.
	EnqueueAfter(key types.NamespacedName, d time.Duration)
	// Run works on keys until ctx ends, then finishes those in work and returns. It is called once.
	Run(ctx context.Context)
}

var _ Queue = (*Runner[types.NamespacedName])(nil)

// QueueOf returns a Runner, or with a Share the part of a shared one that works on the keys of
// this Config, which have no namespace. Of that the Config only has Name, Reconcile, Gate and Root.
// Errors: those of New, and a Name that is not shared.
func QueueOf(share *Share, cfg Config[types.NamespacedName]) (Queue, error) {
	if share == nil {
		return New(cfg)
	}
	return share.queue(cfg)
}

// SharedConfig is the configuration of Shared. All fields but Around, Metrics and Tracer are
// required.
type SharedConfig struct {
	// Names are the Runners that are shared, with the LogKey of each.
	Names map[Name]string
	// Workers and WorkersPerTenant are those of each.
	Workers, WorkersPerTenant int
	// Around returns a gate that calls the given one, whose keys have the tenant as their namespace;
	// nil changes nothing. It is called for each of Names.
	Around  func(inner Grouper[types.NamespacedName]) Gate[types.NamespacedName]
	Clock   clock.WithTicker
	Metrics *Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c SharedConfig) Validate() error { return required.Fields(c, "Around", "Metrics", "Tracer") }

// Shared are Runners whose queue and workers are shared by controllers of tenants which come and go
// while they run, such as target clusters: a tenant that has nothing to do needs neither a
// goroutine nor a series of a metric. Create it with NewShared.
type Shared struct {
	runners map[Name]*sharedRunner
}

// NewShared returns Runners without a tenant. Errors: those of SharedConfig.Validate, and of New.
func NewShared(cfg SharedConfig) (*Shared, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Shared{runners: map[Name]*sharedRunner{}}
	for name, logKey := range cfg.Names {
		r := &sharedRunner{parts: map[string]*part{}}
		var gate Gate[types.NamespacedName] = r
		if cfg.Around != nil {
			gate = cfg.Around(r)
		}
		var err error
		r.Runner, err = New(Config[types.NamespacedName]{
			Name: name, LogKey: logKey, Reconcile: reconcilePart, Workers: cfg.Workers, WorkersPerTenant: cfg.WorkersPerTenant,
			Gate: gate, Group: r.Group, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer, Root: r.root,
		})
		if err != nil {
			return nil, err
		}
		s.runners[name] = r
	}
	return s, nil
}

// Run works on the keys of all tenants until ctx ends.
func (s *Shared) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, r := range s.runners {
		running.Go(func() { r.Run(ctx) })
	}
	running.Wait()
}

// For returns the share of a tenant. usable is called before each pass, which does not begin if it
// returns an error.
func (s *Shared) For(tenant string, usable func() error) *Share {
	return &Share{shared: s, tenant: tenant, usable: usable}
}

// Share is the share of one tenant.
type Share struct {
	shared *Shared
	tenant string
	usable func() error
}

func (s *Share) queue(cfg Config[types.NamespacedName]) (Queue, error) {
	r := s.shared.runners[cfg.Name]
	if r == nil {
		return nil, fmt.Errorf("runner %s: it is not shared", cfg.Name)
	}
	if cfg.Gate == nil {
		cfg.Gate = Open[types.NamespacedName]{}
	}
	return &part{of: r, share: s, cfg: cfg, group: groupOf(cfg.Gate)}, nil
}

// sharedRunner is one shared Runner, and the innermost of its gates.
type sharedRunner struct {
	*Runner[types.NamespacedName]

	mu    sync.Mutex
	parts map[string]*part // that run, by tenant
}

// part is the Queue of a tenant.
type part struct {
	of    *sharedRunner
	share *Share
	cfg   Config[types.NamespacedName]
	group func(types.NamespacedName) int

	// Guarded by mu of the runner.
	ctx    context.Context //nolint:containedctx // that of Run, nil before it: the work of the part ends with it
	early  []func()        // what was enqueued before Run
	inWork sync.WaitGroup
}

// Enqueue has the key reconciled soon, while the part runs.
func (p *part) Enqueue(key types.NamespacedName) { p.EnqueueAfter(key, 0) }

// EnqueueAfter enqueues the key after d.
func (p *part) EnqueueAfter(key types.NamespacedName, d time.Duration) {
	outer := types.NamespacedName{Namespace: p.share.tenant, Name: key.Name}
	p.of.mu.Lock()
	begun := p.ctx != nil
	if !begun {
		p.early = append(p.early, func() { p.of.EnqueueAfter(outer, d) })
	}
	p.of.mu.Unlock()
	if begun {
		p.of.EnqueueAfter(outer, d)
	}
}

func inner(key types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Name: key.Name}
}

// Run has the keys of the part admitted until ctx ends, and returns when none is in work any more.
func (p *part) Run(ctx context.Context) {
	p.of.mu.Lock()
	p.ctx = ctx
	p.of.parts[p.share.tenant] = p // in the place of one that is about to end
	early := p.early
	p.early = nil
	p.of.mu.Unlock()
	for _, enqueue := range early {
		enqueue()
	}
	<-ctx.Done()
	p.of.mu.Lock()
	if p.of.parts[p.share.tenant] == p {
		delete(p.of.parts, p.share.tenant)
	}
	p.of.mu.Unlock()
	p.inWork.Wait()
}

// partOf returns the part that works on a key; nil if there is none.
func (r *sharedRunner) partOf(key types.NamespacedName) *part {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts[key.Namespace]
}

// begin is partOf for work that begins, until done is called.
func (r *sharedRunner) begin(key types.NamespacedName) (p *part, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p = r.parts[key.Namespace]
	if p == nil || p.ctx.Err() != nil {
		return nil, nil
	}
	p.inWork.Add(1)
	return p, p.inWork.Done
}

// partKey is the key of the part in the context of a pass.
type partKey struct{}

// Admit asks the gate of the key's part. The context ends with the part, too.
func (r *sharedRunner) Admit(ctx context.Context, key types.NamespacedName) (context.Context, func(), bool) {
	p, ended := r.begin(key)
	if p == nil {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, partKey{}, p))
	stop := context.AfterFunc(p.ctx, cancel)
	end := func() {
		stop()
		cancel()
		ended()
	}
	owned, done, ok := p.cfg.Gate.Admit(ctx, inner(key))
	if !ok {
		end()
		return nil, nil, false
	}
	return owned, func() { done(); end() }, true
}

// Group is that of the gate of the key's part, -1 for a key of no part.
func (r *sharedRunner) Group(key types.NamespacedName) int {
	if p := r.partOf(key); p != nil {
		return p.group(inner(key))
	}
	return -1
}

func (r *sharedRunner) root(key types.NamespacedName) types.UID {
	if p := r.partOf(key); p != nil && p.cfg.Root != nil {
		return p.cfg.Root(inner(key))
	}
	return ""
}

// reconcilePart is the pass of a key of the part that has admitted it.
func reconcilePart(ctx context.Context, key types.NamespacedName) (Result, error) {
	p, _ := ctx.Value(partKey{}).(*part) // Admit has set it
	if err := p.share.usable(); err != nil {
		return Result{}, err
	}
	return p.cfg.Reconcile(ctx, inner(key))
}
