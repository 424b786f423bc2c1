package bynamespace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests"
)

// linger is how long a target stays open after its last user: most have the next one soon, and each
// connection costs lists.
const linger = 30 * time.Second

// What tenants can cause by changing their Secrets is limited: so often at once, and then one in
// the interval. A Secret that has changed is used within readInterval.
const (
	readBurst    = 10
	readInterval = 4 * time.Second
	lineBurst    = 5
	lineInterval = 10 * time.Minute
)

// Config is the configuration of Targets.
type Config struct {
	// Secrets watches Secrets of the control cluster.
	Secrets corev1client.SecretsGetter
	Select  Selection
	Policy  access.Policy
	// Connect returns the cluster of a namespace, whose requests pass what this process has between
	// controllers and API servers, and above it the transport that wrap returns. Errors: an invalid
	// configuration.
	Connect func(namespace string, config *rest.Config, wrap transport.WrapperFunc) (*Link, error)
	// Identify returns an error unless a cluster, by the UID of its Namespace kube-system, is the one
	// that a namespace had first.
	Identify func(ctx context.Context, namespace string, cluster types.UID) error
	// Budgets are those of requests, by Access.Cluster.
	Budgets *requests.Budgets
	// BlindAfter is how long the Nodes of a cluster may not be delivered before it is not available.
	BlindAfter time.Duration
	// OutageAfter is how long a target may not be available before that is an outage.
	OutageAfter time.Duration
	Clock       clock.WithTickerAndDelayedExecution
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error { return required.Fields(c, "Policy") }

// Link is a target cluster with what keeps it current.
type Link struct {
	Cluster *target.Cluster
	// Run checks the API server until ctx ends. OnServerChange registers a function for when it is
	// away, and when it is back.
	Run            func(ctx context.Context)
	OnServerChange func(f func())
	// Begin is called when the cluster is identified, before the first Node is cached. The function
	// that it returns runs until ctx ends, before the Nodes are removed. Nil if nothing has to run.
	Begin func() (run func(ctx context.Context))
}

// Targets are the target clusters of the namespaces. New returns them; they are safe for concurrent
// use.
type Targets struct {
	cfg      Config
	tasks    *pacing.Tasks
	reads    *pacing.Rates[string] // of Secrets, by namespace
	lines    *pacing.Rates[string] // of the log, by namespace
	onNode   []func(of *target.Cluster, before, after *corev1.Node)
	onChange []func(namespace string)
	onServer []func(of *target.Cluster)

	mu  sync.Mutex
	all map[string]*one // by namespace
}

var _ target.Resolver = (*Targets)(nil)

// New returns Targets without users. Errors: those of Config.Validate.
func New(cfg Config) (*Targets, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Targets{
		cfg: cfg, tasks: pacing.NewTasks(), all: map[string]*one{},
		reads: pacing.NewRates[string](readBurst, readInterval), lines: pacing.NewRates[string](lineBurst, lineInterval),
	}, nil
}

// OnNodeChange is that of target.Resolver.
func (t *Targets) OnNodeChange(f func(of *target.Cluster, before, after *corev1.Node)) {
	t.onNode = append(t.onNode, f)
}

// OnChange calls f each time that the target of a namespace becomes available, or is not available
// for another reason than before. Call it before Run; f must return soon.
func (t *Targets) OnChange(f func(namespace string)) { t.onChange = append(t.onChange, f) }

// OnServerChange calls f each time that the API server of a target is away, and when it is back.
// Call it before Run; f must return soon.
func (t *Targets) OnServerChange(f func(of *target.Cluster)) { t.onServer = append(t.onServer, f) }

// Run watches Secrets, connects and watches Nodes until ctx ends.
func (t *Targets) Run(ctx context.Context) { t.tasks.Run(ctx) }

// For returns the target cluster of a namespace. Errors: *target.UnavailableError.
func (t *Targets) For(namespace string) (*target.Cluster, error) {
	t.mu.Lock()
	o := t.all[namespace]
	t.mu.Unlock()
	if o == nil {
		return nil, &target.UnavailableError{Namespace: namespace, Pending: true, Reason: "no machine of the namespace has needed it yet"}
	}
	return o.get()
}

// Use adds a user of the target of a namespace, which is opened for the first.
func (t *Targets) Use(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.all[namespace]
	if o == nil {
		o = newOne(t, namespace)
		t.all[namespace] = o
		o.end = t.tasks.Begin(o.run)
	}
	o.users++
}

// Leave removes a user, which Use has added.
func (t *Targets) Leave(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.all[namespace]
	if o == nil {
		return
	}
	if o.users--; o.users > 0 {
		return
	}
	o.left++
	left := o.left
	t.cfg.Clock.AfterFunc(linger, func() { t.close(o, left) })
}

// close closes a target, unless it had a user since it was left for the given time.
func (t *Targets) close(o *one, left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.users > 0 || o.left != left || t.all[o.namespace] != o {
		return
	}
	delete(t.all, o.namespace)
	o.end()
}

// machines returns how many users the target of a namespace has.
func (t *Targets) machines(of *one) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return of.users
}

// Len returns the number of open targets.
func (t *Targets) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// Namespaces returns the namespaces with an open target.
func (t *Targets) Namespaces() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.all))
}
