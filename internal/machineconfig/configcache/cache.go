package configcache

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

// Config is the configuration of a Cache. All fields but Namespace, Most and Failed are required.
type Config struct {
	// Client and Metadata list and watch in the target cluster.
	Client   fleetclient.FleetV1alpha1Interface
	Metadata metadata.Interface
	// OwnsPool reports whether this replica may work on a pool now, if the Standing of the pool
	// permits it.
	OwnsPool func(pool *v1alpha1.MachineConfigPool) bool
	// Owns reports whether this replica may work on the KubeletConfig, or the ControllerConfig, of a
	// name now, if the Standing of the object permits it.
	Owns func(name string) bool
	// Namespace is the namespace of the control cluster whose target the cluster is; "" where it is
	// that of all namespaces.
	Namespace string
	// Most is how many bytes the objects of a kind take at most, of a cluster whose API server may
	// send any, and MachineConfigs four times as many; 0 is no bound.
	Most int64
	// Failed is called with the error of each list that fails; nil if no function has to be called.
	Failed func(err error)
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error { return required.Fields(c, "Namespace", "Most", "Failed") }

// Pools are the pools that a Cache knows, as controllers of pools use them.
type Pools interface {
	Pool(name string) (*v1alpha1.MachineConfigPool, bool)
	Pools() []*v1alpha1.MachineConfigPool
	// OnPool has f called with each pool that appears, changes or is removed, and with each as with a
	// new one when the pools of this replica may have changed.
	OnPool(f func(before, after *v1alpha1.MachineConfigPool))
}

var _ Pools = (*Cache)(nil)

// Cache watches the kinds of machine configuration. Create one with New. Reading is safe for
// concurrent use. What it returns is shared, and must not be changed.
type Cache struct {
	cfg  Config
	kick chan struct{}

	pools    *watched[*v1alpha1.MachineConfigPool]
	kubelets *watched[*v1alpha1.KubeletConfig]
	controls *watched[*v1alpha1.ControllerConfig]
	configs  *watched[*v1alpha1.MachineConfig]
	rendered *watched[*metav1.PartialObjectMetadata]

	mu        sync.Mutex
	announced bool // the handlers were called with all objects
}

// New returns a Cache, which is empty until Run. Errors: those of Config.Validate.
func New(cfg Config) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Cache{cfg: cfg, kick: make(chan struct{}, 1)}
	client, rendered := cfg.Client, cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("renderedmachineconfigs"))
	c.pools = newWatched[*v1alpha1.MachineConfigPool](
		"MachineConfigPools", c.source(objectcache.From(client.MachineConfigPools()), 1), c.again)
	c.kubelets = newWatched[*v1alpha1.KubeletConfig]("KubeletConfigs", c.source(objectcache.From(client.KubeletConfigs()), 1), c.again)
	c.controls = newWatched[*v1alpha1.ControllerConfig](
		"ControllerConfigs", c.source(objectcache.From(client.ControllerConfigs()), 1), c.again)
	c.configs = newWatched[*v1alpha1.MachineConfig](
		"MachineConfigs", c.source(objectcache.From(client.MachineConfigs()), configsOfMost), c.again)
	c.rendered = newWatched[*metav1.PartialObjectMetadata](
		"metadata of RenderedMachineConfigs", c.source(objectcache.From(rendered), 1), c.again)
	// An object that appears may be the first one of this replica, and one that is removed the last.
	c.pools.handle(func(before, after *v1alpha1.MachineConfigPool) {
		appeared(c, before, after, c.StandingOfPool)
	})
	c.kubelets.handle(func(before, after *v1alpha1.KubeletConfig) {
		appeared(c, before, after, func(k *v1alpha1.KubeletConfig) Standing { return c.Standing(k) })
	})
	c.controls.handle(func(before, after *v1alpha1.ControllerConfig) {
		appeared(c, before, after, func(o *v1alpha1.ControllerConfig) Standing { return c.Standing(o) })
	})
	return c, nil
}

// configsOfMost is how many times Config.Most MachineConfigs may have: they have contents of files.
const configsOfMost = 4

// source returns a source as the Config wants it, of objects that may have so many times Most.
func (c *Cache) source(from objectcache.Source, timesMost int64) objectcache.Source {
	if c.cfg.Most > 0 {
		from = from.AtMost(timesMost * c.cfg.Most)
	}
	if c.cfg.Failed == nil {
		return from
	}
	list := from.List
	from.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		found, err := list(ctx, options)
		if err != nil && ctx.Err() == nil {
			c.cfg.Failed(err)
		}
		return found, err
	}
	return from
}

// appeared has what this replica owns determined again if an object has appeared or was removed. If
// its standing has changed, handlers are called, too.
func appeared[T comparable](c *Cache, before, after T, standing func(T) Standing) {
	var none T
	switch {
	case before == none || after == none:
		c.again()
	case standing(before) != standing(after):
		c.Look()
	}
}

// OnPool has f called with each pool that appears (before is nil), changes, or is removed (after is
// nil). Like the other handlers it is set before Run; f must return soon.
func (c *Cache) OnPool(f func(before, after *v1alpha1.MachineConfigPool)) { c.pools.handle(f) }

// OnKubeletConfig is OnPool for KubeletConfigs.
func (c *Cache) OnKubeletConfig(f func(before, after *v1alpha1.KubeletConfig)) { c.kubelets.handle(f) }

// OnControllerConfig is OnPool for the ControllerConfig.
func (c *Cache) OnControllerConfig(f func(before, after *v1alpha1.ControllerConfig)) {
	c.controls.handle(func(before, after *v1alpha1.ControllerConfig) {
		if isTheOne(before) || isTheOne(after) {
			f(before, after)
		}
	})
}

// OnMachineConfig is OnPool for MachineConfigs, for changes since all were listed.
func (c *Cache) OnMachineConfig(f func(before, after *v1alpha1.MachineConfig)) { c.configs.handle(f) }

// OnRendered is OnPool for the metadata of RenderedMachineConfigs, for changes since all were
// listed.
func (c *Cache) OnRendered(f func(before, after *metav1.PartialObjectMetadata)) {
	c.rendered.handle(f)
}

// Ready reports whether all that this replica needs was listed. Until then nothing may be concluded
// from the absence of an object; when it becomes ready, handlers are called with all pools,
// KubeletConfigs and the ControllerConfig.
func (c *Cache) Ready() bool {
	return c.hasSmall() && (!c.needsLarge() || c.configs.isListed() && c.rendered.isListed())
}

// hasSmall reports whether the kinds that all replicas watch are listed.
func (c *Cache) hasSmall() bool {
	return c.pools.isListed() && c.kubelets.isListed() && c.controls.isListed()
}

// needsLarge reports whether the replica owns something that MachineConfigs and
// RenderedMachineConfigs are needed for.
func (c *Cache) needsLarge() bool {
	return slices.ContainsFunc(c.Pools(), c.Owns) ||
		slices.ContainsFunc(c.KubeletConfigs(), func(k *v1alpha1.KubeletConfig) bool { return c.cfg.Owns(k.Name) && c.Standing(k) == Own }) ||
		c.OwnsControllerConfig()
}

// Pool returns a pool.
func (c *Cache) Pool(name string) (*v1alpha1.MachineConfigPool, bool) {
	return c.pools.objects().Get(types.NamespacedName{Name: name})
}

// Pools returns all pools, in no order.
func (c *Cache) Pools() []*v1alpha1.MachineConfigPool { return c.pools.objects().All() }

// Owns reports whether this replica may work on a pool now.
func (c *Cache) Owns(pool *v1alpha1.MachineConfigPool) bool {
	return c.StandingOfPool(pool) == Own && c.cfg.OwnsPool(pool)
}

// Owned returns the pools that this replica may work on now.
func (c *Cache) Owned() []*v1alpha1.MachineConfigPool {
	return slices.DeleteFunc(c.Pools(), func(p *v1alpha1.MachineConfigPool) bool { return !c.Owns(p) })
}

// KubeletConfigs returns all KubeletConfigs, in no order.
func (c *Cache) KubeletConfigs() []*v1alpha1.KubeletConfig { return c.kubelets.objects().All() }

// KubeletConfig returns a KubeletConfig.
func (c *Cache) KubeletConfig(name string) (*v1alpha1.KubeletConfig, bool) {
	return c.kubelets.objects().Get(types.NamespacedName{Name: name})
}

// ControllerConfig returns the ControllerConfig; nil if there is none.
func (c *Cache) ControllerConfig() *v1alpha1.ControllerConfig {
	config, _ := c.controls.objects().Get(types.NamespacedName{Name: v1alpha1.ControllerConfigName})
	return config
}

// OwnsControllerConfig reports whether there is a ControllerConfig that this replica may work on
// now.
func (c *Cache) OwnsControllerConfig() bool {
	config := c.ControllerConfig()
	return config != nil && c.cfg.Owns(v1alpha1.ControllerConfigName) && c.Standing(config) == Own
}

// MachineConfigs returns all MachineConfigs, in no order.
func (c *Cache) MachineConfigs() []*v1alpha1.MachineConfig { return c.configs.objects().All() }

// MachineConfig returns a MachineConfig.
func (c *Cache) MachineConfig(name string) (*v1alpha1.MachineConfig, bool) {
	return c.configs.objects().Get(types.NamespacedName{Name: name})
}

// Rendered returns the metadata of the RenderedMachineConfigs of a pool, in no order.
func (c *Cache) Rendered(pool string) []*metav1.PartialObjectMetadata {
	return slices.DeleteFunc(c.rendered.objects().All(), func(r *metav1.PartialObjectMetadata) bool {
		return r.Labels[v1alpha1.LabelPool] != pool
	})
}

func isTheOne(c *v1alpha1.ControllerConfig) bool {
	return c != nil && c.Name == v1alpha1.ControllerConfigName
}

// Look has what this replica owns determined again, and the handlers called with all pools,
// KubeletConfigs and the ControllerConfig: slots were opened or lost, or a namespace is served
// again. It returns at once.
func (c *Cache) Look() {
	c.announceAgain()
	c.again()
}

func (c *Cache) announceAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced = false
}

func (c *Cache) again() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends, and returns when all watches have ended.
func (c *Cache) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.pools.run(ctx) })
	running.Go(func() { c.kubelets.run(ctx) })
	running.Go(func() { c.controls.run(ctx) })
	endLarge := func() {}
	defer func() { endLarge() }()
	runs := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		}
		switch needs := c.hasSmall() && c.needsLarge(); {
		case needs && !runs:
			endLarge = c.beginLarge(ctx)
			runs = true
		case !needs && runs:
			endLarge()
			runs = false
		}
		c.announce()
	}
}

// beginLarge watches the kinds that only an owner needs, until the returned function is called.
func (c *Cache) beginLarge(ctx context.Context) (end func()) {
	inner, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.configs.run(inner) })
	running.Go(func() { c.rendered.run(inner) })
	c.announceAgain()
	return func() {
		stop()
		running.Wait()
	}
}

// announce calls the handlers with all objects of the kinds that all replicas watch, once.
func (c *Cache) announce() {
	if !c.Ready() {
		return
	}
	c.mu.Lock()
	before := c.announced
	c.announced = true
	c.mu.Unlock()
	if before {
		return
	}
	c.pools.announce()
	c.kubelets.announce()
	c.controls.announce()
}
