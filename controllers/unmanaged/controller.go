package unmanaged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

// targetCluster is the only key of that runner.
const targetCluster = "target"

// Config is the configuration of Controller. All fields but Namespace, Metrics and Tracer are
// required.
type Config struct {
	// Control lists machines in the control cluster; Target lists and patches Nodes.
	Control, Target metadata.Interface
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	// Serves reports whether the fleet serves a namespace.
	Serves func(namespace string) bool
	// Timeout is for how long a Node must have been without a machine. It is counted from when this
	// leader first saw it so: the times on a Node are those of another clock.
	Timeout time.Duration
	// Period is the time between two searches; not 0.
	Period time.Duration
	// Gate admits the leader.
	Gate    runner.Gate[string]
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Namespace", "Timeout", "Metrics", "Tracer")
}

// Controller annotates Nodes that have no machine with v1alpha1.AnnotationNotManaged, and removes
// our finalizer from them. The machine controller removes the annotation when it claims a Node. New
// returns one.
type Controller struct {
	cfg    Config
	runner *runner.Runner[string]
	rounds *runner.Rounds

	mu    sync.Mutex
	since map[types.UID]time.Time // when a Node without a machine was first seen
}

// New returns a Controller that searches from Run on. Errors: those of Config.Validate.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	u := &Controller{cfg: cfg, rounds: runner.NewRounds(cfg.Clock, cfg.Period)}
	var err error
	u.runner, err = runner.New(runner.Config[string]{
		Name: runner.UnmanagedNodes, Reconcile: u.search, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	return u, err
}

// Begin starts to search, because the session begins to lead. It returns at once.
func (u *Controller) Begin() { u.rounds.Begin() }

// Run searches until ctx ends.
func (u *Controller) Run(ctx context.Context) {
	u.rounds.Run(ctx, u.runner, func(first bool) {
		if first {
			u.remember(nil)
		}
		u.runner.Enqueue(targetCluster)
	})
}

// search reads all machines, and then all Nodes. Errors: those of a request; then no Node counts as
// seen without a machine.
func (u *Controller) search(ctx context.Context, _ string) (runner.Result, error) {
	all := decide.NewMachines(u.cfg.Serves, u.cfg.Namespace != "")
	machines := u.cfg.Control.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(u.cfg.Namespace)
	if err := decode.EachObject(ctx, "Machines", metav1.ListOptions{}, machines.List, func(m *metav1.PartialObjectMetadata) { all.Add(m) }); err != nil {
		return runner.Result{}, err
	}
	u.mu.Lock()
	before, since, now := u.since, map[types.UID]time.Time{}, u.cfg.Clock.Now()
	u.mu.Unlock()
	var errs []error
	nodes := u.cfg.Target.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	err := decode.EachObject(ctx, "Nodes", metav1.ListOptions{}, nodes.List, func(node *metav1.PartialObjectMetadata) {
		if !all.Unmanaged(node) {
			return
		}
		first, seen := before[node.UID]
		if !seen {
			first = now
		}
		since[node.UID] = first
		if now.Sub(first) >= u.cfg.Timeout && (!decide.IsAnnotated(node) || decide.HasFinalizer(node)) {
			errs = append(errs, u.annotate(ctx, nodes, node))
		}
	})
	if err != nil {
		return runner.Result{}, errors.Join(append(errs, err)...)
	}
	u.remember(since)
	return runner.Result{}, errors.Join(errs...)
}

func (u *Controller) remember(since map[types.UID]time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.since = since
}

// annotate adds the annotation to a Node and removes our finalizer. A Node that has changed since
// it was read may have got a machine: it is left to the next search.
func (u *Controller) annotate(ctx context.Context, nodes metadata.ResourceInterface, node *metav1.PartialObjectMetadata) error {
	change := map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": map[string]string{v1alpha1.AnnotationNotManaged: "1"},
	}
	if decide.HasFinalizer(node) {
		change["finalizers"] = slices.DeleteFunc(slices.Clone(node.Finalizers), func(f string) bool { return f == v1alpha1.NodeFinalizerName })
	}
	body, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("encode patch of Node %s: %w", node.Name, err)
	}
	_, err = nodes.Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("annotate Node %s without machine: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Annotated Node without machine", "node", node.Name, "hadFinalizer", decide.HasFinalizer(node))
	return nil
}
