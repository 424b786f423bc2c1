package replica

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
)

// clusterClients are those of a target cluster.
type clusterClients struct {
	core     kubeclient.Interface
	metadata metadata.Interface
	configs  fleetclient.FleetV1alpha1Interface
}

// bytesOfConfiguration bounds the objects of a kind of machine configuration that are kept of a
// namespace's target cluster, whose API server may send any; MachineConfigs have more.
const bytesOfConfiguration = 4 << 20

// clusterConfiguration is machine configuration in one target cluster: its caches and controllers.
// Its name is that of the cluster: a namespace, beyond which nothing is read or done, or "".
type clusterConfiguration struct {
	*machineConfiguration
	clusterClients

	cluster *target.Cluster
	share   *runner.Share // nil without a name
	most    int64         // 0 without a name
	// view shows the objects of the namespace, and calls handlers from begin until end.
	view       *objectcache.View
	begin, end func()
	cache      *configcache.Cache
	// pools are the MachineConfigPools that this process has written.
	pools   *patch.Latest[*fleetv1alpha1.MachineConfigPool]
	first   *join.Source
	writer  *configcache.Writer
	events  targetEvents
	renders *render.Controller
	updates *update.Controller
	running []controller // the controllers

	problems struct {
		sync.Mutex

		last   error // of a list
		logged time.Time
		log    klog.Logger
	}
}

// newCluster returns the configuration of a target cluster, before the first Node of the cluster is
// cached. Errors: an invalid configuration.
func (m *machineConfiguration) newCluster(cluster *target.Cluster, clients clusterClients) (*clusterConfiguration, error) {
	c := &clusterConfiguration{
		machineConfiguration: m, clusterClients: clients, cluster: cluster, view: m.deps.view, begin: func() {}, end: func() {},
		events: newTargetEvents(clients.core, m.deps.o.Name),
	}
	if namespace := cluster.Name; namespace != "" {
		c.most = bytesOfConfiguration
		c.view, c.begin, c.end = m.deps.view.Of(namespace)
		c.share = m.shared.For(namespace, func() error {
			_, err := m.deps.byNamespace.For(namespace)
			return err
		})
	}
	c.pools = patch.NewLatest[*fleetv1alpha1.MachineConfigPool]().AtMost(c.most)
	c.writer = configcache.NewWriter(c.configs, c.most)
	var err error
	c.cache, err = configcache.New(configcache.Config{
		Client: c.configs, Metadata: c.metadata, OwnsPool: c.ownsPool, Owns: c.ownsName, Namespace: cluster.Name, Most: c.most, Failed: c.failed,
	})
	if err != nil {
		return nil, err
	}
	c.first, err = join.NewSource(join.SourceConfig{Fleet: c.configs, Pools: c.cache, View: c.view})
	if err != nil {
		return nil, err
	}
	for _, add := range []func() error{c.addRender, c.addUpdate, c.addKubeletConfigs, c.addTemplates, c.addJoin} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	c.cache.OnPool(func(before, after *fleetv1alpha1.MachineConfigPool) {
		if after == nil {
			c.pools.Forget(before.UID)
		}
		m.machines.FirstConfigChanged(cluster.Name)
	})
	c.view.Deployments.OnChange(c.deploymentChanged)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[cluster.Name] = c
	return c, nil
}

// Run works until ctx ends, and returns when all work has ended.
func (c *clusterConfiguration) Run(ctx context.Context) {
	c.problems.Lock()
	c.problems.log = klog.FromContext(ctx)
	c.problems.Unlock()
	c.begin()
	defer c.close()
	var running sync.WaitGroup
	defer running.Wait()
	defer c.end()
	for _, one := range c.running {
		running.Go(func() { one.Run(ctx) })
	}
	running.Go(func() { c.events.Run(ctx) })
	if c.cluster.Name == "" {
		c.cache.Run(ctx)
		return
	}
	if c.awaitKinds(ctx) {
		c.cache.Run(klog.NewContext(ctx, klog.Logger{})) // which logs each list that fails; see failed
	}
}

// close has the configuration be found no more.
func (c *clusterConfiguration) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[c.cluster.Name] == c {
		delete(c.all, c.cluster.Name)
	}
}

// Pauses: between looks whether the kinds are installed in the cluster, and between two lines of
// the log about the same cluster.
const kindsEvery, problemEvery = time.Minute, 10 * time.Minute

// awaitKinds returns when the kinds can be listed; false means that ctx has ended.
func (c *clusterConfiguration) awaitKinds(ctx context.Context) bool {
	for {
		_, err := c.configs.MachineConfigPools().List(ctx, metav1.ListOptions{Limit: 1})
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		pause := kindsEvery
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			pause = time.Second
		}
		c.failed(err)
		timer := c.deps.wall.NewTimer(wait.Jitter(pause, 0.5)) //nolint:mnd // a half
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
		}
	}
}

// failed records that a kind cannot be listed, and logs it at times.
func (c *clusterConfiguration) failed(err error) {
	if c.cluster.Name == "" || runner.Waits(err) {
		return // the watch logs it, or the target is not available
	}
	now := c.deps.wall.Now()
	c.problems.Lock()
	c.problems.last = err
	isNews := now.Sub(c.problems.logged) >= problemEvery
	if isNews {
		c.problems.logged = now
	}
	log := c.problems.log
	c.problems.Unlock()
	if isNews {
		log.Error(err, "Failed to list machine configuration of a target cluster; its pools wait", telemetry.KeyNamespace, c.cluster.Name)
	}
}

// problem returns the error of the last list that has failed; nil if none has.
func (c *clusterConfiguration) problem() error {
	c.problems.Lock()
	defer c.problems.Unlock()
	return c.problems.last
}

// addRender adds the controller that renders pools.
func (c *clusterConfiguration) addRender() (err error) {
	d := c.deps
	c.renders, err = render.New(render.Config{
		Client: c.configs, Target: c.metadata, Machines: d.machines, Control: d.metadata, Namespace: c.namespace(),
		Most: c.most, Cache: c.cache, View: c.view, Nodes: c.cluster.Nodes, Written: c.pools, Prefix: d.o.Configs.prefix(),
		Extensions: d.o.Configs.Extensions, Replaces: c.replaces,
		Events: c.recorder(), Deletions: d.deletions, Gate: c.gate(false), Share: c.share,
		Clock: d.wall, Workers: poolWorkers, Metrics: d.metrics, Tracer: d.tracer,
	})
	c.running = append(c.running, c.renders)
	return err
}

// addUpdate adds the controller that brings Nodes to the targets of their pools. It drains them
// with the drains of the machine controller: the limits on moving volumes hold for both.
func (c *clusterConfiguration) addUpdate() (err error) {
	d := c.deps
	c.updates, err = update.New(update.Config{
		Pools: c.cache, Owns: c.cache.Owns, Fleet: c.configs, Written: c.pools, Cluster: c.cluster, Most: c.most,
		View: c.view, Metadata: d.metadata, Namespace: c.namespace(), IsNewSet: rollout.IsNewSet,
		Drains: c.drains, Drain: d.o.Drain, Servers: d.outages(), Held: d.holds.Held,
		NodeChanged: c.renders.NodeChanged, Prefix: d.o.Configs.prefix(), Events: c.recorder(), Counters: c.counters,
		Clock: d.wall, Gate: c.gate(true), Share: c.share, Workers: poolWorkers, Metrics: d.metrics, Tracer: d.tracer,
	})
	c.running = append(c.running, c.updates)
	return err
}

// addKubeletConfigs adds the controller of KubeletConfigs.
func (c *clusterConfiguration) addKubeletConfigs() error {
	d := c.deps
	kubelets, err := kubeletconfig.New(kubeletconfig.Config{
		Client: c.configs, Cache: c.cache, Configs: c.writer, Most: c.most, Extensions: d.o.Configs.Extensions, Events: c.recorder(),
		PoolGate: c.gate(true), NameGate: c.nameGate(), Share: c.share, Clock: d.wall, Workers: poolWorkers, Metrics: d.metrics, Tracer: d.tracer,
	})
	c.running = append(c.running, kubelets)
	return err
}

// addTemplates adds the controller of templates of MachineConfigs.
func (c *clusterConfiguration) addTemplates() error {
	d := c.deps
	templates, err := template.New(template.Config{
		Client: c.configs, Cache: c.cache, Configs: c.writer, Secrets: c.core.CoreV1(), Templates: c.templates,
		Extensions: d.o.Configs.Extensions,
		Events:     c.recorder(), Gate: c.nameGate(), Share: c.share, Clock: d.wall, Metrics: d.metrics, Tracer: d.tracer,
	})
	c.running = append(c.running, templates)
	return err
}

// addJoin adds the controller that joins pools with MachineDeployments.
func (c *clusterConfiguration) addJoin() error {
	d := c.deps
	joins, err := join.New(join.Config{
		Machines: d.machines, Fleet: c.configs, Pools: c.cache, View: c.view, Cluster: c.cluster, Most: c.most,
		NewSet: rollout.NewSet, Prefix: d.o.Configs.prefix(), Events: d.recorder(v1alpha1.EventSourceMachineDeployment), Clock: d.wall,
		Gate: c.gate(true), Share: c.share, Workers: d.o.ConcurrentSyncs, Metrics: d.metrics, Tracer: d.tracer,
	})
	c.running = append(c.running, joins)
	return err
}

// namespace returns the only namespace of the control cluster that pools may concern; "" means all.
func (c *clusterConfiguration) namespace() string {
	if c.cluster.Name != "" {
		return c.cluster.Name
	}
	return c.deps.o.Namespace
}

// replaces reports whether Nodes of a pool get a new configuration by being replaced: the
// MachineDeployment, which is in the slot of the pool, rolls it out so.
func (c *clusterConfiguration) replaces(pool *fleetv1alpha1.MachineConfigPool) bool {
	ref := pool.Spec.MachineRef
	if ref == nil || pool.Spec.Rollout != fleetv1alpha1.RolloutMachineDeployment {
		return false
	}
	deployment, known := c.view.Deployments.Get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	return known && deployment.Spec.Strategy.Type != v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
}

// deploymentChanged enqueues the pools of a MachineDeployment that appears, or whose strategy
// changes: what Nodes can get depends on it.
func (c *clusterConfiguration) deploymentChanged(before, after *v1alpha1.MachineDeployment) {
	if after == nil || before != nil && before.Spec.Strategy.Type == after.Spec.Strategy.Type {
		return
	}
	for _, pool := range c.cache.Pools() {
		if ref := pool.Spec.MachineRef; ref != nil && ref.Namespace == after.Namespace && ref.Name == after.Name {
			c.renders.Enqueue(pool.Name)
		}
	}
}

// slotOf returns the slot of a pool: that of its namespace's cluster, or of its MachineDeployment,
// if it names one, so that one replica decides on both. It is not ok in a namespace that another
// manager serves.
func (c *clusterConfiguration) slotOf(pool *fleetv1alpha1.MachineConfigPool) (slot int, ok bool) {
	slots := c.deps.slots
	ref := pool.Spec.MachineRef
	if c.cluster.Name != "" || ref == nil {
		return c.slotOfName(pool.Name)
	}
	return slots.spread.Of(ref.Namespace, ref.Name), !slots.namespaces.KeptOut(ref.Namespace)
}

// slotOfName returns the slot of an object without a namespace.
func (c *clusterConfiguration) slotOfName(name string) (slot int, ok bool) {
	slots := c.deps.slots
	if namespace := c.cluster.Name; namespace != "" {
		return slots.spread.Of(namespace, ""), slots.namespaces.Serves(namespace)
	}
	return slots.spread.Of("", name), true
}

func (c *clusterConfiguration) ownsPool(pool *fleetv1alpha1.MachineConfigPool) bool {
	slot, ok := c.slotOf(pool)
	return ok && c.deps.slots.fence.Holds(slot)
}

func (c *clusterConfiguration) ownsName(name string) bool {
	slot, ok := c.slotOfName(name)
	return ok && c.deps.slots.fence.Holds(slot)
}

// gate returns a Gate that admits pools by their slot, and with own only those whose standing is
// Own.
func (c *clusterConfiguration) gate(own bool) runner.Gate[types.NamespacedName] {
	slots := c.deps.slots
	inner := fence.NewGate(slots.fence, func(key types.NamespacedName) (int, bool) {
		pool, known := c.cache.Pool(key.Name)
		if !known || own && c.cache.StandingOfPool(pool) != configcache.Own {
			return 0, false
		}
		return c.slotOf(pool)
	})
	if c.cluster.Name != "" {
		return inner // the shared gate counts for the namespace
	}
	return namespacelease.Counted(slots.namespaces, c.namespaceOf, inner)
}

// namespaceOf returns the namespace of the MachineDeployment that a pool names; "" if it names
// none.
func (c *clusterConfiguration) namespaceOf(key types.NamespacedName) string {
	if pool, known := c.cache.Pool(key.Name); known && pool.Spec.MachineRef != nil {
		return pool.Spec.MachineRef.Namespace
	}
	return ""
}

// nameGate returns a Gate that admits objects without a namespace by their names.
func (c *clusterConfiguration) nameGate() runner.Gate[types.NamespacedName] {
	return fence.NewGate(c.deps.slots.fence, func(key types.NamespacedName) (int, bool) { return c.slotOfName(key.Name) })
}

// prefix returns the prefix of the annotations through which the fleet and the daemon work
// together.
func (o *ConfigOptions) prefix() fleetv1alpha1.AnnotationPrefix {
	return fleetv1alpha1.AnnotationPrefix(o.Prefix)
}

// recorder returns the recorder of Events of machine configuration, in the target cluster.
func (c *clusterConfiguration) recorder() events.EventRecorder {
	return c.events.recorder(v1alpha1.EventSourceMachineConfig)
}

// targetEvents records Events about objects of the target cluster there.
type targetEvents struct{ events.EventBroadcaster }

func newTargetEvents(client kubeclient.Interface, reporter string) targetEvents {
	return targetEvents{events.NewBroadcaster(telemetry.ByReplica(&events.EventSinkImpl{Interface: client.EventsV1()}, reporter))}
}

func (t targetEvents) recorder(source string) events.EventRecorder {
	return telemetry.Damped(t.NewRecorder(scheme.Scheme, source), clock.RealClock{})
}

// Run sends Events until ctx ends.
func (t targetEvents) Run(ctx context.Context) {
	defer t.Shutdown()
	if err := t.StartRecordingToSinkWithContext(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to start to record Events in the target cluster")
		return
	}
	<-ctx.Done()
}
