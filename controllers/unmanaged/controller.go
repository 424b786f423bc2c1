package unmanaged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/unmanaged/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// allNamespaces is the key of the target cluster that all namespaces have; others are the names of
// namespaces that have a separate one.
const allNamespaces = ""

// Config is the configuration of Controller. All fields but Namespace, Metrics and Tracer are
// required, and one of Target and Targets.
type Config struct {
	// Control lists machines in the control cluster.
	Control metadata.Interface
	// Target lists and patches Nodes of the target cluster that all namespaces have.
	Target metadata.Interface
	// Targets are the target clusters of namespaces that have their own.
	Targets Targets
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	// Serves reports whether the fleet serves a namespace.
	Serves func(namespace string) bool
	// Timeout is for how long a Node must have been without a machine. It is counted from when this
	// process first saw it so: the times on a Node are those of another clock.
	Timeout time.Duration
	// Period is the time between two searches; not 0.
	Period time.Duration
	// Gate admits the leader, and with Targets the owner of the namespace.
	Gate    runner.Gate[string]
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Targets are target clusters of namespaces.
type Targets interface {
	// For is that of target.Resolver.
	For(namespace string) (*target.Cluster, error)
	// Namespaces returns the namespaces whose clusters this process is connected to.
	Namespaces() []string
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	without := "Targets"
	if c.Targets != nil {
		without = "Target"
	}
	return required.Fields(c, without, "Namespace", "Timeout", "Metrics", "Tracer")
}

// Controller annotates Nodes that have no machine with v1alpha1.AnnotationNotManaged, and removes
// our finalizer from them. The machine controller removes the annotation when it claims a Node. New
// returns one.
type Controller struct {
	cfg    Config
	runner *runner.Runner[string]
	rounds *runner.Rounds

	mu   sync.Mutex
	seen map[string]sighting // by key
}

// sighting is when Nodes of a target cluster without a machine were first seen.
type sighting struct {
	cluster *target.Cluster // with Targets; another connection is another one
	since   map[types.UID]time.Time
}

// New returns a Controller that searches from Run on. Errors: those of Config.Validate.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	u := &Controller{cfg: cfg, rounds: runner.NewRounds(cfg.Clock, cfg.Period), seen: map[string]sighting{}}
	var err error
	u.runner, err = runner.New(runner.Config[string]{
		Name: runner.UnmanagedNodes, Reconcile: u.search, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	return u, err
}

// Begin starts to search, because the session begins to lead. It returns at once.
func (u *Controller) Begin() { u.rounds.Begin() }

// TargetChanged searches the target cluster of a namespace, if it is available.
func (u *Controller) TargetChanged(namespace string) { u.runner.Enqueue(namespace) }

// Run searches until ctx ends.
func (u *Controller) Run(ctx context.Context) {
	u.rounds.Run(ctx, u.runner, func(first bool) {
		keys := []string{allNamespaces}
		if u.cfg.Targets != nil {
			keys = u.cfg.Targets.Namespaces()
		}
		u.mu.Lock()
		maps.DeleteFunc(u.seen, func(key string, _ sighting) bool { return !slices.Contains(keys, key) || first && u.cfg.Targets == nil })
		u.mu.Unlock()
		for _, key := range keys {
			u.runner.Enqueue(key)
		}
	})
}

// mostErrors is how many of the Nodes that cannot be written a search reports, and longestSearch
// how long one takes at most in the cluster of a namespace, whose API server may take any time for
// each Node: it occupies the worker. The next one continues.
const mostErrors, longestSearch = 10, 30 * time.Second

// search reads all machines that may have Nodes in a target cluster, and then its Nodes. Errors:
// those of a request; then no Node counts as seen without a machine.
func (u *Controller) search(ctx context.Context, key string) (runner.Result, error) {
	cluster, ok := u.clusterOf(key)
	if !ok {
		u.remember(key, sighting{})
		return runner.Result{}, nil
	}
	namespace := key
	if key == allNamespaces {
		namespace = u.cfg.Namespace
	} else {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, longestSearch)
		defer end()
	}
	all := decide.NewMachines(u.cfg.Serves, namespace != "")
	machines := u.cfg.Control.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(namespace)
	if err := decode.EachObject(ctx, "Machines", metav1.ListOptions{}, machines.List, func(m *metav1.PartialObjectMetadata) {
		all.Add(m)
	}); err != nil {
		return runner.Result{}, err
	}
	u.mu.Lock()
	before, is, now := u.seen[key], sighting{cluster: cluster, since: map[types.UID]time.Time{}}, u.cfg.Clock.Now()
	u.mu.Unlock()
	var errs []error
	nodes := u.nodesOf(cluster)
	err := nodes.each(ctx, func(node metav1.Object) {
		if !all.Unmanaged(node) {
			return
		}
		first, seen := before.since[node.GetUID()]
		if !seen || before.cluster != cluster {
			first = now
		}
		is.since[node.GetUID()] = first
		if now.Sub(first) < u.cfg.Timeout || decide.IsAnnotated(node) && !decide.HasFinalizer(node) || ctx.Err() != nil {
			return
		}
		if err := annotate(ctx, nodes, node); err != nil && len(errs) < mostErrors {
			errs = append(errs, err)
		}
	})
	if err != nil {
		return runner.Result{}, errors.Join(append(errs, err)...)
	}
	u.remember(key, is)
	return runner.Result{}, errors.Join(errs...)
}

// clusterOf returns the target cluster of a key, nil for that of all namespaces; it is not ok if it
// is not available, or another manager serves its namespace.
func (u *Controller) clusterOf(key string) (cluster *target.Cluster, ok bool) {
	if key == allNamespaces {
		return nil, true
	}
	cluster, err := u.cfg.Targets.For(key)
	return cluster, err == nil && u.cfg.Serves(key)
}

func (u *Controller) remember(key string, is sighting) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen[key] = is; is.since == nil {
		delete(u.seen, key)
	}
}

// nodes reads and patches the Nodes of a target cluster.
type nodes struct {
	each  func(ctx context.Context, visit func(metav1.Object)) error
	patch func(ctx context.Context, name string, body []byte) error
}

// nodesOf returns the Nodes of a cluster; those of the cluster of all namespaces, of which a
// replica watches a part, are read live.
func (u *Controller) nodesOf(cluster *target.Cluster) nodes {
	if cluster != nil {
		return nodes{
			each: func(_ context.Context, visit func(metav1.Object)) error {
				for _, node := range cluster.Nodes.All() {
					visit(node)
				}
				return nil
			},
			patch: func(ctx context.Context, name string, body []byte) error {
				_, err := cluster.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
				return err
			},
		}
	}
	live := u.cfg.Target.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	return nodes{
		each: func(ctx context.Context, visit func(metav1.Object)) error {
			return decode.EachObject(ctx, "Nodes", metav1.ListOptions{}, live.List, func(node *metav1.PartialObjectMetadata) { visit(node) })
		},
		patch: func(ctx context.Context, name string, body []byte) error {
			_, err := live.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		},
	}
}

// annotate adds the annotation to a Node and removes our finalizer. A Node that has changed since
// it was read may have got a machine: it is left to the next search.
func annotate(ctx context.Context, nodes nodes, node metav1.Object) error {
	change := map[string]any{
		"uid": node.GetUID(), "resourceVersion": node.GetResourceVersion(), "annotations": map[string]string{v1alpha1.AnnotationNotManaged: "1"},
	}
	if decide.HasFinalizer(node) {
		change["finalizers"] = slices.DeleteFunc(slices.Clone(node.GetFinalizers()), func(f string) bool {
			return f == v1alpha1.NodeFinalizerName
		})
	}
	body, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("encode patch of Node %s: %w", node.GetName(), err)
	}
	err = nodes.patch(ctx, node.GetName(), body)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("annotate Node %s without machine: %w", node.GetName(), err)
	}
	klog.FromContext(ctx).Info("Annotated Node without machine", "node", node.GetName(), "hadFinalizer", decide.HasFinalizer(node))
	return nil
}
