package target

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/trim"
)

// Resolver finds the target cluster of a namespace.
type Resolver interface {
	For(namespace string) (*Cluster, error)
}

// Cluster is one target cluster. Make one with New.
type Cluster struct {
	// Client for writes and live reads.
	Client kubernetes.Interface
	// Nodes from the informer.
	Nodes corelisters.NodeLister

	factory informers.SharedInformerFactory
	nodes   cache.SharedIndexInformer
}

// New prepares a connection; nothing is read before Start.
func New(client kubernetes.Interface) *Cluster {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim.ManagedFields))
	nodes := factory.Core().V1().Nodes()
	return &Cluster{Client: client, Nodes: nodes.Lister(), factory: factory, nodes: nodes.Informer()}
}

// OnNode has f called with every Node that appears (before is nil), changes, or goes (after is nil).
func (c *Cluster) OnNode(f func(before, after *corev1.Node)) error {
	_, err := c.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if node, ok := obj.(*corev1.Node); ok {
				f(nil, node)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok := before.(*corev1.Node)
			node, ok2 := after.(*corev1.Node)
			if ok && ok2 {
				f(old, node)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if node, ok := obj.(*corev1.Node); ok {
				f(node, nil)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch the target cluster's Nodes: %w", err)
	}
	return nil
}

// Start begins to watch, and returns when the Nodes are complete or ctx has ended. The watch ends with ctx.
func (c *Cluster) Start(ctx context.Context) error {
	c.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), c.nodes.HasSynced) {
		return errors.New("the target cluster's Nodes could not be listed in time")
	}
	return nil
}

// Stop waits until the watches, whose context has ended, are gone.
func (c *Cluster) Stop() { c.factory.Shutdown() }

// Single resolves every namespace to the same cluster.
type Single struct{ Cluster *Cluster }

// For returns the cluster.
func (s Single) For(string) (*Cluster, error) { return s.Cluster, nil }
