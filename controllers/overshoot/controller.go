package overshoot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

const (
	// countWorkers are for the count of all namespaces, and for those that are counted again.
	countWorkers = 4
	// all is the key of the count of all namespaces.
	all = metav1.NamespaceAll
	// freezeAttempts is how often a freeze is written anew when the set has changed, but not its size.
	freezeAttempts = 3
)

// Config is the configuration of Controller. All fields but Namespace, Metrics and Tracer are
// required.
type Config struct {
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	// Machines reads and writes the control cluster, and Metadata lists there.
	Machines machineclient.MachineV1alpha1Interface
	Metadata metadata.Interface
	Events   events.EventRecorder
	// Namespaces returns the namespaces that the fleet serves, and Serves reports whether it serves
	// one.
	Namespaces func() []string
	Serves     func(namespace string) bool
	// Most returns how many machines the MachineSets of a MachineDeployment may have together.
	Most   func(d *v1alpha1.MachineDeployment) int
	Limits decide.Limits
	// Period is the time between two counts; not 0.
	Period time.Duration
	// Gate admits the leader.
	Gate    runner.Gate[string]
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Namespace", "Limits", "Metrics", "Tracer")
}

// Controller counts the machines of all namespaces periodically, and freezes MachineSets that
// create beyond what was ordered. A new leader has no earlier count to compare with, so that it
// freezes nothing before its second count. New returns one.
type Controller struct {
	cfg    Config
	runner *runner.Runner[string]
	rounds *runner.Rounds

	mu     sync.Mutex
	counts map[string]decide.Count // the last one of each namespace
}

// New returns a Controller that counts from Run on. Errors: those of Config.Validate.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	o := &Controller{cfg: cfg, rounds: runner.NewRounds(cfg.Clock, cfg.Period), counts: map[string]decide.Count{}}
	var err error
	o.runner, err = runner.New(runner.Config[string]{
		Name:      runner.Overshoot,
		LogKey:    telemetry.KeyNamespace,
		Reconcile: o.count,
		Workers:   countWorkers,
		Gate:      cfg.Gate,
		Clock:     cfg.Clock,
		Metrics:   cfg.Metrics,
		Tracer:    cfg.Tracer,
	})
	return o, err
}

// Begin starts to count, because the session begins to lead. It returns at once.
func (c *Controller) Begin() { c.rounds.Begin() }

// Run counts until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.rounds.Run(ctx, c.runner, c.round)
}

// round begins a count of all namespaces. What an earlier leadership has counted is forgotten.
func (c *Controller) round(first bool) {
	namespaces := c.cfg.Namespaces()
	c.mu.Lock()
	maps.DeleteFunc(c.counts, func(namespace string, _ decide.Count) bool {
		return first || !slices.Contains(namespaces, namespace)
	})
	c.mu.Unlock()
	if len(namespaces) > 0 {
		c.runner.Enqueue(all)
	}
}

// count counts the machines of a namespace, or of all, and freezes MachineSets or ends their
// freezes. After an error the count before stays, and the next attempt is compared with it. A
// namespace in which a set could not be written is counted again alone.
func (c *Controller) count(ctx context.Context, namespace string) (runner.Result, error) {
	counters, err := c.observe(ctx, namespace)
	if err != nil {
		return runner.Result{}, err
	}
	for _, of := range slices.Sorted(maps.Keys(counters)) {
		var errs []error
		for _, v := range counters[of].Decide(c.cfg.Limits) {
			errs = append(errs, c.act(ctx, v))
		}
		switch err := errors.Join(errs...); {
		case err == nil:
			c.mu.Lock()
			c.counts[of] = counters[of].Count()
			c.mu.Unlock()
		case namespace == all:
			c.runner.Enqueue(of) // if it fails again, that is logged
		default:
			return runner.Result{}, err
		}
	}
	return runner.Result{}, nil
}

// counted returns the last counts of the namespaces to count now, zero for those without.
func (c *Controller) counted(namespace string) map[string]decide.Count {
	namespaces := []string{namespace}
	if namespace == all {
		namespaces = c.cfg.Namespaces()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := map[string]decide.Count{}
	for _, of := range namespaces {
		if c.cfg.Serves(of) {
			before[of] = c.counts[of]
		}
	}
	return before
}

// observe reads a namespace, or all by the same requests, since each may have few objects: sizes
// before machines, so that a machine of a new size is not compared with an old one.
func (c *Controller) observe(ctx context.Context, namespace string) (map[string]*decide.Counter, error) {
	before, counters := c.counted(namespace), map[string]*decide.Counter{}
	if len(before) == 0 {
		return counters, nil
	}
	if namespace == all {
		namespace = c.cfg.Namespace
	}
	deployments := map[string][]decide.Deployment{}
	err := decode.EachPage(ctx, "MachineDeployments", c.cfg.Machines.MachineDeployments(namespace).List,
		func(page *v1alpha1.MachineDeploymentList) {
			for i := range page.Items {
				d := &page.Items[i]
				if _, counted := before[d.Namespace]; counted {
					one := decide.Deployment{UID: d.UID, Name: d.Name, Generation: d.Generation, Most: c.cfg.Most(d)}
					deployments[d.Namespace] = append(deployments[d.Namespace], one)
				}
			}
		})
	if err != nil {
		return nil, err
	}
	sets := map[string][]*v1alpha1.MachineSet{}
	err = decode.EachPage(ctx, "MachineSets", c.cfg.Machines.MachineSets(namespace).List, func(page *v1alpha1.MachineSetList) {
		for i := range page.Items {
			set := &page.Items[i]
			// All sets are kept until they are counted.
			set.Spec.Template, set.Spec.Selector, set.ManagedFields = v1alpha1.MachineTemplateSpec{}, nil, nil
			if _, counted := before[set.Namespace]; counted {
				sets[set.Namespace] = append(sets[set.Namespace], set)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for of := range before {
		counters[of] = decide.NewCounter(before[of], sets[of], deployments[of])
	}
	machines := c.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(namespace)
	return counters, decode.EachObject(ctx, "Machines", metav1.ListOptions{}, machines.List, func(m *metav1.PartialObjectMetadata) {
		if counter := counters[m.Namespace]; counter != nil {
			counter.Add(m)
		}
	})
}

// act freezes a MachineSet, or ends its freeze. A set that has changed meanwhile is read again: its
// controller writes it while it creates machines. If its size has changed it is left to the next
// count.
func (c *Controller) act(ctx context.Context, v decide.Verdict) error {
	// It is for this write alone: what it remembers of writes is for controllers with a cache.
	sets := patch.New(func(namespace string) patch.Patcher[*v1alpha1.MachineSet] {
		return c.cfg.Machines.MachineSets(namespace)
	})
	set := v.Set
	for attempt := 1; ; attempt++ {
		if machinefacts.IsFrozen(set) == v.Freeze || set.UID != v.Set.UID || set.Generation != v.Set.Generation {
			return nil
		}
		_, err := sets.Commit(ctx, set, apply(v, set))
		switch {
		case err == nil:
			c.report(ctx, v)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || attempt == freezeAttempts:
			return fmt.Errorf("change the freeze of MachineSet %s/%s: %w", set.Namespace, set.Name, err)
		}
		if set, err = c.cfg.Machines.MachineSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read MachineSet %s/%s: %w", v.Set.Namespace, v.Set.Name, err)
		}
	}
}

// apply returns the set with the freeze, or without it.
func apply(v decide.Verdict, set *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	set = set.DeepCopy()
	if v.Freeze {
		metav1.SetMetaDataLabel(&set.ObjectMeta, v1alpha1.LabelFreeze, "True")
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationOvershooting, v.Why)
		return set
	}
	delete(set.Labels, v1alpha1.LabelFreeze)
	delete(set.Annotations, v1alpha1.AnnotationOvershooting)
	return set
}

// report emits an Event on the set, and logs.
func (c *Controller) report(ctx context.Context, v decide.Verdict) {
	logger := klog.FromContext(ctx).WithValues(telemetry.KeyMachineSet, klog.KObj(v.Set), "why", v.Why)
	if v.Freeze {
		logger.Error(nil, "Froze MachineSet")
		telemetry.EmitUnlogged(c.cfg.Events, v.Set, v1alpha1.EventFrozeMachineSet, v.Why+"; it creates no machines until there are fewer")
		return
	}
	logger.Info("Unfroze MachineSet")
	telemetry.EmitUnlogged(c.cfg.Events, v.Set, v1alpha1.EventUnfrozeMachineSet, v.Why+", and is no longer frozen")
}
