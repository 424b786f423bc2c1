package kubeletconfig

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/defaults"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/fold"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Config is the configuration of the controller. All fields but Most, Extensions, the gates, Share,
// Workers, Metrics and Tracer are required.
type Config struct {
	Client fleetclient.FleetV1alpha1Interface
	Cache  *configcache.Cache
	// Configs writes MachineConfigs.
	Configs *configcache.Writer
	// Most is how many bytes the written KubeletConfigs take at most that are remembered; 0 is no
	// bound.
	Most int64
	// Extensions are the names of extensions that exist.
	Extensions []string

	Events events.EventRecorder
	// PoolGate admits pools, and NameGate KubeletConfigs.
	PoolGate, NameGate runner.Gate[types.NamespacedName]
	Share              *runner.Share
	Clock              clock.WithTicker
	Workers            int
	Metrics            *runner.Metrics
	Tracer             trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Most", "Extensions", "PoolGate", "NameGate", "Share", "Workers", "Metrics", "Tracer")
}

// Controller folds KubeletConfigs. Create one with New.
type Controller struct {
	cfg      Config
	kubelets *patch.Committer[*v1alpha1.KubeletConfig]
	pools    runner.Queue
	statuses runner.Queue
}

// New returns the controller and registers its handlers with the Cache. Errors: those of
// Config.Validate, and negative Workers.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg,
		kubelets: patch.NewSharing(patch.NewLatest[*v1alpha1.KubeletConfig]().AtMost(cfg.Most),
			func(string) patch.Patcher[*v1alpha1.KubeletConfig] { return cfg.Client.KubeletConfigs() }),
	}
	base := runner.Config[types.NamespacedName]{
		Workers: cfg.Workers, WorkersPerTenant: cfg.Workers, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	}
	var errs [2]error
	base.Name, base.LogKey, base.Gate, base.Reconcile = runner.KubeletConfig, telemetry.KeyPool, cfg.PoolGate, c.reconcilePool
	c.pools, errs[0] = runner.QueueOf(cfg.Share, base)
	base.Name, base.LogKey, base.Gate, base.Reconcile = runner.KubeletConfigStatus, telemetry.KeyKubeletConfig, cfg.NameGate, c.reconcileStatus
	c.statuses, errs[1] = runner.QueueOf(cfg.Share, base)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	c.watch()
	return c, nil
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.pools.Run(ctx) })
	c.statuses.Run(ctx)
}

// fold returns what the KubeletConfigs of a pool result in.
func (c *Controller) fold(pool *v1alpha1.MachineConfigPool) fold.Folded {
	configs := c.cfg.Cache.KubeletConfigs()
	if len(fold.Select(pool, configs)) == 0 {
		return fold.Folded{}
	}
	byDefault, err := defaults.Of(pool, c.cfg.Cache.MachineConfigs(), merge.Fleet{Extensions: c.cfg.Extensions})
	if err != nil {
		return fold.WithoutDefault(pool, configs, err)
	}
	f := fold.Fold(pool, byDefault, configs)
	if f.MachineConfig != nil {
		f.MachineConfig.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(pool, v1alpha1.SchemeGroupVersion.WithKind("MachineConfigPool")),
		}
	}
	return f
}

// reconcilePool keeps the generated MachineConfig of a pool.
func (c *Controller) reconcilePool(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	if !c.cfg.Cache.Ready() {
		return runner.Result{}, nil // it is enqueued again when the cache is ready
	}
	pool, known := c.cfg.Cache.Pool(key.Name)
	if !known || pool.DeletionTimestamp != nil {
		return runner.Result{}, nil // the MachineConfig is deleted with its owner, the pool
	}
	f := c.fold(pool)
	if f.Blocked {
		return runner.Result{}, nil
	}
	name := fold.Name(pool.Name)
	existing, exists := c.cfg.Cache.MachineConfig(name)
	switch {
	case f.MachineConfig != nil && exists:
		return runner.Result{}, c.cfg.Configs.Keep(ctx, existing, f.MachineConfig)
	case f.MachineConfig != nil:
		return runner.Result{}, c.cfg.Configs.Create(ctx, f.MachineConfig)
	case exists && defaults.IsGenerated(existing):
		return runner.Result{}, c.cfg.Configs.Delete(ctx, existing)
	}
	return runner.Result{}, nil
}

// reconcileStatus writes the status of a KubeletConfig, when the generated MachineConfigs of all
// its pools are as they are folded.
func (c *Controller) reconcileStatus(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	if !c.cfg.Cache.Ready() {
		return runner.Result{}, nil
	}
	cached, known := c.cfg.Cache.KubeletConfig(key.Name)
	if !known || cached.DeletionTimestamp != nil {
		return runner.Result{}, nil
	}
	config := c.kubelets.Newest(cached)
	switch c.cfg.Cache.Standing(config) {
	case configcache.Own:
	case configcache.Unclaimed:
		return runner.Result{}, c.claim(ctx, config) // an event
	case configcache.OfOther:
		return runner.Result{}, nil
	}
	var results []v1alpha1.KubeletConfigPoolStatus
	for _, pool := range c.cfg.Cache.Pools() {
		if pool.DeletionTimestamp != nil || len(fold.Select(pool, []*v1alpha1.KubeletConfig{config})) == 0 {
			continue
		}
		f := c.fold(pool)
		if f.MachineConfig != nil {
			existing, exists := c.cfg.Cache.MachineConfig(f.MachineConfig.Name)
			if !exists || !configcache.IsAs(existing, f.MachineConfig) {
				return runner.Result{}, nil // its change enqueues this KubeletConfig again
			}
		}
		results = append(results, f.Pools[config.Name])
	}
	desired := config.DeepCopy()
	desired.Status = fold.Status(c.cfg.Clock.Now(), config, results)
	after, err := c.kubelets.Commit(ctx, config, desired)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return runner.Result{}, nil
		}
		return runner.Result{}, fmt.Errorf("write the status of the KubeletConfig: %w", err)
	}
	c.report(ctx, config, after)
	return runner.Result{}, nil
}

// claim claims a KubeletConfig for the namespace.
func (c *Controller) claim(ctx context.Context, config *v1alpha1.KubeletConfig) error {
	claimed := config.DeepCopy()
	c.cfg.Cache.Claim(&claimed.ObjectMeta)
	_, err := c.kubelets.Commit(ctx, config, claimed)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the namespace that the KubeletConfig is for: %w", err)
	}
	return nil
}

// report emits that settings have become invalid, or for another cause.
func (c *Controller) report(ctx context.Context, before, after *v1alpha1.KubeletConfig) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.KubeletConfigAccepted)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.KubeletConfigAccepted)
	switch {
	case is == nil || was != nil && was.Status == is.Status && was.Message == is.Message:
	case is.Reason == fold.ReasonInvalid:
		telemetry.Emit(ctx, c.cfg.Events, after, machinev1alpha1.EventKubeletConfigRefused, is.Message)
	default:
		klog.FromContext(ctx).Info("Updated status of KubeletConfig", "reason", is.Reason)
	}
}
