package join

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Config is the configuration of a Controller. All fields but Most, Gate, Share, Workers, Metrics
// and Tracer are required.
type Config struct {
	// Machines writes to the control cluster, and Fleet reads pools in the target cluster from its API
	// server.
	Machines machineclient.MachineV1alpha1Interface
	Fleet    fleetclient.MachineConfigPoolsGetter
	Pools    configcache.Pools
	// View shows the objects of the control cluster that this replica may reconcile, and Cluster its
	// Nodes.
	View    *objectcache.View
	Cluster *target.Cluster
	// Most is how many bytes the written Nodes take at most that are remembered; 0 is no bound.
	Most int64
	// NewSet returns the new set among the MachineSets of a MachineDeployment, the one of its
	// template; nil when there is none.
	NewSet func(d *machinev1alpha1.MachineDeployment, sets []*machinev1alpha1.MachineSet) *machinev1alpha1.MachineSet
	// Prefix is that of the annotations of Nodes.
	Prefix v1alpha1.AnnotationPrefix
	Events events.EventRecorder
	Clock  clock.WithTicker
	// Gate admits pools.
	Gate    runner.Gate[types.NamespacedName]
	Share   *runner.Share
	Workers int
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Most", "Gate", "Share", "Workers", "Metrics", "Tracer")
}

// Controller joins pools with MachineDeployments. Create one with New, before the View and the
// Cluster are filled.
type Controller struct {
	cfg         Config
	runner      runner.Queue
	deployments *patch.Committer[*machinev1alpha1.MachineDeployment]
	nodes       *patch.Committer[*corev1.Node]

	mu      sync.Mutex
	failing map[types.UID]failure // by Node
}

// failure is when the failure of a Node with a configuration was first seen.
type failure struct {
	config string
	since  time.Time
}

// New returns the controller, and registers its handlers. Errors: those of Config.Validate, and
// negative Workers.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, failing: map[types.UID]failure{},
		deployments: patch.New(func(ns string) patch.Patcher[*machinev1alpha1.MachineDeployment] {
			return cfg.Machines.MachineDeployments(ns)
		}),
		nodes: patch.NewSharing(patch.NewLatest[*corev1.Node]().AtMost(cfg.Most),
			func(string) patch.Patcher[*corev1.Node] { return cfg.Cluster.Client.CoreV1().Nodes() }),
	}
	var err error
	c.runner, err = runner.QueueOf(cfg.Share, runner.Config[types.NamespacedName]{
		Name: runner.MachineConfigJoin, LogKey: telemetry.KeyPool, Reconcile: c.reconcile, Workers: cfg.Workers, WorkersPerTenant: cfg.Workers,
		Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
		Root: c.root,
	})
	if err != nil {
		return nil, err
	}
	c.watch()
	return c, nil
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.runner.Run(ctx) }

// reconcile brings the template of the pool's MachineDeployment, and the Nodes that are updated in
// place, to what they should carry.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	pool, known := c.cfg.Pools.Pool(key.Name)
	if !known || !stamp.IsByDeployment(pool) {
		return runner.Result{}, nil
	}
	telemetry.About(ctx, pool)
	deployment := c.deploymentOf(pool)
	err := c.stamp(ctx, pool, deployment)
	if deployment == nil || !stamp.HasMachines(c.cfg.Pools.Pools(), pool) {
		return runner.Result{}, err
	}
	deployment = c.deployments.Newest(deployment)
	sets := c.cfg.View.Sets.Under(deployment)
	fresh := c.newSet(deployment, sets)
	var wake time.Duration
	errs := []error{err}
	for _, set := range sets {
		for _, m := range c.cfg.View.Machines.Under(set) {
			again, err := c.updateNode(ctx, pool, m, fresh)
			wake, errs = machinefacts.Sooner(wake, again), append(errs, err)
		}
	}
	return runner.Result{RequeueAfter: wake}, errors.Join(errs...)
}

// deploymentOf returns the MachineDeployment that a pool refers to, as it was last written; nil
// when it is not known.
func (c *Controller) deploymentOf(pool *v1alpha1.MachineConfigPool) *machinev1alpha1.MachineDeployment {
	d, known := c.cfg.View.Deployments.Get(types.NamespacedName{Namespace: pool.Spec.MachineRef.Namespace, Name: pool.Spec.MachineRef.Name})
	if !known {
		return nil
	}
	return c.deployments.Newest(d)
}

// root returns the UID of the MachineDeployment of a pool; "" while it is not known.
func (c *Controller) root(key types.NamespacedName) types.UID {
	pool, known := c.cfg.Pools.Pool(key.Name)
	if !known || !stamp.IsByDeployment(pool) {
		return ""
	}
	if d := c.deploymentOf(pool); d != nil {
		return d.UID
	}
	return ""
}

// stamp writes the pool's target on the template of the MachineDeployment.
func (c *Controller) stamp(ctx context.Context, pool *v1alpha1.MachineConfigPool, deployment *machinev1alpha1.MachineDeployment) error {
	w := stamp.World{Pool: pool, Pools: c.cfg.Pools.Pools(), Deployment: deployment}
	config, hold := stamp.Stamp(w)
	if hold == stamp.HoldReadLive {
		live, err := c.cfg.Fleet.MachineConfigPools().Get(ctx, pool.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && live.UID != pool.UID:
			return nil // the cache will show it
		case err != nil:
			return fmt.Errorf("read MachineConfigPool %s before a template is changed: %w", pool.Name, err)
		}
		w.Pool, w.Live = live, true
		config, hold = stamp.Stamp(w)
	}
	telemetry.Decided(trace.SpanFromContext(ctx), "Stamp", func() (string, string) { return string(hold), "" })
	if config == "" {
		return nil
	}
	written, err := c.deployments.Commit(ctx, deployment, stamp.Stamped(deployment, config))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the configuration of pool %s on the template of MachineDeployment %s: %w",
			pool.Name, pool.Spec.MachineRef.Name, err)
	}
	telemetry.Emit(ctx, c.cfg.Events, written, machinev1alpha1.EventMachineConfigChanged,
		fmt.Sprintf("The template has the configuration %s of MachineConfigPool %s", config, pool.Name))
	return nil
}

// updateNode carries on the update in place of the Node of a machine; fresh is the new set. wake is
// when to look again; 0 for at the next event.
func (c *Controller) updateNode(
	ctx context.Context, pool *v1alpha1.MachineConfigPool, m *machinev1alpha1.Machine, fresh *machinev1alpha1.MachineSet,
) (wake time.Duration, err error) {
	node := c.nodeOf(m)
	if node == nil {
		return 0, nil
	}
	w := stamp.NodeWorld{Now: c.cfg.Clock.Now(), Prefix: c.cfg.Prefix, Pool: pool, Machine: m, Node: node, To: c.nextSet(m, node), New: fresh}
	w.FailingSince = c.failingSince(w)
	v := stamp.DecideNode(w)
	c.noteFailing(w, v.IsFailing)
	if v.Node == node {
		return v.Wake, nil
	}
	if err := runner.MayGoOn(ctx); err != nil {
		return 0, err
	}
	_, err = c.nodes.Commit(ctx, node, v.Node)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s on Node %s: %w", v.Did, node.Name, err)
	}
	return v.Wake, nil
}

// nodeOf returns the Node of a machine, as it was last written; nil when there is none that is the
// machine's.
func (c *Controller) nodeOf(m *machinev1alpha1.Machine) *corev1.Node {
	name := m.Labels[machinev1alpha1.LabelNode]
	node, known := c.cfg.Cluster.Nodes.Get(types.NamespacedName{Name: name})
	if name == "" || !known {
		return nil
	}
	if node = c.nodes.Newest(node); nodeowner.Relate(m, node) != nodeowner.Own {
		return nil
	}
	return node
}

// newSet returns the MachineSet to which machines are updated in place by now; nil when there is
// none, and while they are not.
func (c *Controller) newSet(d *machinev1alpha1.MachineDeployment, sets []*machinev1alpha1.MachineSet) *machinev1alpha1.MachineSet {
	if d.Spec.Paused || d.Spec.Strategy.Type != machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType {
		return nil
	}
	return c.cfg.NewSet(d, sets)
}

// nextSet returns the MachineSet that the machine of a Node is updated for; nil when it is not
// known.
func (c *Controller) nextSet(m *machinev1alpha1.Machine, node *corev1.Node) *machinev1alpha1.MachineSet {
	name := node.Annotations[machinev1alpha1.AnnotationUpdateTo]
	set, known := c.cfg.View.Sets.Get(types.NamespacedName{Namespace: m.Namespace, Name: name})
	if name == "" || !known {
		return nil
	}
	own, known := ownerref.SetOf(c.cfg.View, m)
	if !known {
		return nil
	}
	of, to := metav1.GetControllerOfNoCopy(own), metav1.GetControllerOfNoCopy(set)
	if of == nil || to == nil || of.UID != to.UID {
		return nil // a set of another MachineDeployment: the annotation is not the fleet's
	}
	return set
}

// failingSince returns when the failure of a Node with what it is assigned was first seen.
func (c *Controller) failingSince(w stamp.NodeWorld) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.failing[w.Node.UID]; f.config == w.Node.Annotations[c.cfg.Prefix.DesiredConfig()] {
		return f.since
	}
	return time.Time{}
}

// noteFailing records that a Node fails with what it is assigned, or does not.
func (c *Controller) noteFailing(w stamp.NodeWorld, fails bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !fails:
		delete(c.failing, w.Node.UID)
	case w.FailingSince.IsZero():
		c.failing[w.Node.UID] = failure{config: w.Node.Annotations[c.cfg.Prefix.DesiredConfig()], since: w.Now}
	}
}
