package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	typedfleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// reportWithin bounds a request that reports.
const reportWithin = 30 * time.Second

// InvalidError is the error of Fetch for a configuration that can never be applied.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }

// refused returns the error as a refusal.
func (e *InvalidError) refused() []plan.Refusal {
	return []plan.Refusal{{Field: "config", Message: e.Err.Error()}}
}

// File is a Source with one configuration, for Once. Nothing drains a Node for it, and reports are
// the result of Once.
type File struct{ Config desired.Config }

var _ Source = File{}

// Node is Source's.
func (f File) Node() Node { return Node{IsKnown: true, Desired: f.Config.Name} }

// Fetch is Source's.
func (f File) Fetch(context.Context, string) (desired.Config, error) { return f.Config, nil }

// Report is Source's.
func (f File) Report(context.Context, lifecycle.Report) error { return nil }

// DrainsNode is Source's.
func (f File) DrainsNode() bool { return false }

// Cluster is the Source of a machine that is a Node. Create one with NewCluster, and call Run.
type Cluster struct {
	nodes   metadata.ResourceInterface
	configs typedfleetv1alpha1.RenderedMachineConfigInterface
	name    string
	prefix  v1alpha1.AnnotationPrefix
	changed chan struct{}

	mu   sync.Mutex
	node *metav1.PartialObjectMetadata // nil until it was read
}

var _ Source = (*Cluster)(nil)

// Nodes is the resource of Nodes, for a client of their metadata: no other part of a Node is read.
func Nodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
}

// NewCluster returns the Source for the Node of that name. Clients need access to that Node and to
// RenderedMachineConfigs only.
func NewCluster(
	nodes metadata.ResourceInterface, configs typedfleetv1alpha1.RenderedMachineConfigInterface, node string, prefix v1alpha1.AnnotationPrefix,
) *Cluster {
	return &Cluster{nodes: nodes, configs: configs, name: node, prefix: prefix, changed: make(chan struct{}, 1)}
}

// Changed receives a value when the Node has changed.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// Run watches the Node until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	only := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()
		return o
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.nodes.List(ctx, only(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.nodes.Watch(ctx, only(o))
			},
		},
		ObjectType: &metav1.PartialObjectMetadata{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.see(o) },
			UpdateFunc: func(_, o any) { c.see(o) },
		},
	})
	informer.RunWithContext(ctx)
}

// see keeps a version of the Node, unless a newer one is known.
func (c *Cluster) see(o any) {
	node, ok := o.(*metav1.PartialObjectMetadata)
	if !ok || node.Name != c.name {
		return
	}
	c.mu.Lock()
	isNew := c.node == nil || c.node.UID != node.UID || objectversion.Compare(node.ResourceVersion, c.node.ResourceVersion) > 0
	if isNew {
		c.node = node
	}
	c.mu.Unlock()
	if isNew {
		select {
		case c.changed <- struct{}{}:
		default: // it has been woken already
		}
	}
}

func (c *Cluster) annotations() (map[string]string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil {
		return nil, false
	}
	return c.node.Annotations, true
}

// Node is Source's.
func (c *Cluster) Node() Node {
	a, ok := c.annotations()
	return Node{IsKnown: ok, Desired: a[c.prefix.DesiredConfig()], Drain: a[c.prefix.DesiredDrain()], Drained: a[c.prefix.LastAppliedDrain()]}
}

// Fetch is Source's.
func (c *Cluster) Fetch(ctx context.Context, name string) (desired.Config, error) {
	o, err := c.configs.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return desired.Config{}, err //nolint:wrapcheck // it names the object
	}
	config, err := desired.FromObject(o)
	if err != nil {
		return desired.Config{}, &InvalidError{Err: err}
	}
	return config, nil
}

// Report is Source's. Only annotations of which the daemon is the one writer are in the patch.
func (c *Cluster) Report(ctx context.Context, r lifecycle.Report) error {
	known, ok := c.annotations()
	if !ok {
		return nil // it is reported when the Node was read
	}
	changes := map[string]any{}
	for key, value := range map[string]string{
		c.prefix.CurrentConfig(): r.Current, c.prefix.State(): string(r.State), c.prefix.Reason(): r.Reason, c.prefix.DesiredDrain(): r.Drain,
	} {
		if known[key] == value {
			continue
		}
		changes[key] = value
		if value == "" {
			changes[key] = nil // removes it
		}
	}
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return fmt.Errorf("report on the Node: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	node, err := c.nodes.Patch(ctx, c.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("report on the Node: %w", err)
	}
	c.see(node)
	return nil
}

// DrainsNode is Source's.
func (c *Cluster) DrainsNode() bool { return true }
