package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// machinePoll is the interval at which live reads check whether a Node that is being deleted still
// has a machine which is not cached here: no event reports its deletion.
const machinePoll = time.Minute

// Config is the configuration of the controller. All fields but Gate, Workers, Metrics and Tracer
// are required.
type Config struct {
	// Metadata lists in the control cluster, without a cache.
	Metadata metadata.Interface
	View     *objectcache.View
	Targets  target.Resolver
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	Clock     clock.WithTicker
	Gate      runner.Gate[types.NamespacedName]
	Workers   int
	Metrics   *runner.Metrics
	Tracer    trace.Tracer
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "Namespace", "Gate", "Workers", "Metrics", "Tracer")
}

// Controller reconciles Nodes that are being deleted. New returns one; call it before the View and
// the Targets are filled.
type Controller struct {
	cfg    Config
	runner *runner.Runner[types.NamespacedName]
}

// New returns the controller and registers its handlers for Nodes and machines. Errors: those of
// Config.Validate, and negative Workers.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg}
	var err error
	c.runner, err = runner.New(runner.Config[types.NamespacedName]{
		Name:      runner.Node,
		LogKey:    telemetry.KeyNode,
		Reconcile: c.reconcile,
		Workers:   cfg.Workers,
		Gate:      cfg.Gate,
		Clock:     cfg.Clock,
		Metrics:   cfg.Metrics,
		Tracer:    cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	cfg.Targets.OnNodeChange(c.nodeChanged)
	cfg.View.Machines.OnChange(c.machineChanged)
	return c, nil
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.runner.Run(ctx) }

// isBlocked reports whether a Node is being deleted and has our finalizer.
func isBlocked(node *corev1.Node) bool {
	return node != nil && node.DeletionTimestamp != nil && slices.Contains(node.Finalizers, v1alpha1.NodeFinalizerName)
}

func (c *Controller) nodeChanged(of *target.Cluster, before, after *corev1.Node) {
	if isBlocked(after) && !isBlocked(before) {
		c.runner.Enqueue(of.Key(after.Name))
	}
}

// machineChanged enqueues the Node of a machine that was removed from the cache.
func (c *Controller) machineChanged(before, after *v1alpha1.Machine) {
	if after != nil {
		return
	}
	cluster, err := c.cfg.Targets.For(before.Namespace)
	if err != nil || cluster == nil {
		return // its Nodes are enqueued when it is available
	}
	for _, name := range []string{before.Labels[v1alpha1.LabelNode], before.Name} {
		if node, known := cluster.Nodes.Get(types.NamespacedName{Name: name}); known && isBlocked(node) {
			c.runner.Enqueue(cluster.Key(name))
		}
	}
}

// reconcile removes our finalizer from a Node without a machine. The key is that of
// target.Cluster.Key.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (runner.Result, error) {
	cluster, err := c.cfg.Targets.For(key.Namespace)
	if err != nil || cluster == nil {
		return runner.Result{}, err
	}
	node, known := cluster.Nodes.Get(types.NamespacedName{Name: key.Name})
	if !known || !isBlocked(node) || slices.ContainsFunc(c.cfg.View.MachinesOnNode(node.Name), mayHave(cluster, node)) {
		return runner.Result{}, nil // the machine controller removes the finalizer
	}
	telemetry.About(ctx, node)
	hasMachine, err := c.hasMachine(ctx, cluster, node)
	if err != nil {
		return runner.Result{}, err
	}
	telemetry.Decided(trace.SpanFromContext(ctx), verdictOn(hasMachine), func() (string, string) {
		return "", fmt.Sprintf("the Node's machine exists: %v", hasMachine)
	})
	if hasMachine {
		return runner.Result{RequeueAfter: machinePoll}, nil
	}
	return runner.Result{}, c.release(ctx, cluster, node)
}

// verdictOn names what is done with a Node that is being deleted.
func verdictOn(hasMachine bool) string {
	if hasMachine {
		return "Rest"
	}
	return "Release"
}

// mayHave returns a function that reports whether a Node of a cluster may belong to a machine that
// names it: a bound Node belongs only to the machine of the same namespace and name, and a Node of
// a namespace's cluster only to a machine of that namespace.
func mayHave(cluster *target.Cluster, node *corev1.Node) func(m *v1alpha1.Machine) bool {
	ref, bound := v1alpha1.MachineOf(node)
	return func(m *v1alpha1.Machine) bool {
		return (cluster.Name == "" || m.Namespace == cluster.Name) && (!bound || m.Namespace == ref.Namespace && m.Name == ref.Name)
	}
}

// hasMachine reports, by live reads of metadata, which also return machines that cannot be decoded,
// whether the machine exists that the Node is bound to; or, for a Node that is bound to none, a
// machine that names the Node, or that the Node names.
func (c *Controller) hasMachine(ctx context.Context, cluster *target.Cluster, node *corev1.Node) (bool, error) {
	served := cmp.Or(cluster.Name, c.cfg.Namespace)
	all := c.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines"))
	if ref, bound := v1alpha1.MachineOf(node); bound {
		if served != "" && ref.Namespace != served {
			return true, nil // the namespace is not served; the fleet that serves it removes the finalizer
		}
		_, err := all.Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("read machine %s/%s of Node %s: %w", ref.Namespace, ref.Name, node.Name, err)
		}
		return err == nil, nil
	}
	machines := all.Namespace(served)
	named, err := machines.List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.LabelNode: node.Name}.String(), Limit: 1})
	if err != nil {
		return false, fmt.Errorf("list the machines of Node %s: %w", node.Name, err)
	}
	name := node.Labels[v1alpha1.LabelMachineName]
	if name == "" || len(named.Items) > 0 {
		return len(named.Items) > 0, nil
	}
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	list, err := machines.List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return false, fmt.Errorf("list machine %s of Node %s: %w", name, node.Name, err)
	}
	return slices.ContainsFunc(list.Items, func(m metav1.PartialObjectMetadata) bool { return m.Name == name }), nil
}

// release removes our finalizer from the Node, if the Node is unchanged.
func (c *Controller) release(ctx context.Context, cluster *target.Cluster, node *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion,
		"$deleteFromPrimitiveList/finalizers": []string{v1alpha1.NodeFinalizerName},
	}})
	if err != nil {
		return fmt.Errorf("encode patch of Node %s: %w", node.Name, err)
	}
	_, err = cluster.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove our finalizer from Node %s without machine: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Removed finalizer from Node without machine")
	return nil
}
