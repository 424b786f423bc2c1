package bynamespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

const (
	// bytesOfTarget and bytesOfMachine bound the Nodes of a target that are cached. A Node has about 4
	// kB without its images, and machines are a part of the Nodes.
	bytesOfTarget  = 16 << 20
	bytesOfMachine = 32 << 10
	// bytesOfNode is the memory that a Node takes in addition to its encoding, at least.
	bytesOfNode = 1 << 10
	// tooManyPause is the time from reading too many Nodes to reading them again.
	tooManyPause = 5 * time.Minute
)

// most returns how many bytes of Nodes are cached of a target with so many machines.
func most(machines int) int64 { return bytesOfTarget + int64(machines)*bytesOfMachine }

// sizeOf returns the bytes that a Node counts, 0 for nil.
func sizeOf(node *corev1.Node) int64 {
	if node == nil {
		return 0
	}
	return int64(node.Size()) + bytesOfNode
}

// trim removes from a Node what nothing here reads, which is most of it.
func trim(node *corev1.Node) {
	node.ManagedFields, node.Status.Images, node.Status.VolumesInUse = nil, nil, nil
}

// tooManyError means that the Nodes of a target take more memory than they may.
type tooManyError struct {
	nodes, machines int
}

func (e *tooManyError) Error() string {
	return fmt.Sprintf(
		"its Nodes take more memory than the %d MiB that are for %d machines: %d Nodes were read, and are read again in %s at the earliest; "+
			"remove Nodes that are not of machines", most(e.machines)>>20, e.machines, e.nodes, tooManyPause,
	)
}

// watch watches the Nodes until ctx ends, and again after a pause if there were too many.
func (l *live) watch(ctx context.Context) {
	for {
		err := l.watchOnce(ctx)
		if err == nil {
			return
		}
		l.one.set(l, ofNodes, err.Error())
		l.empty()
		timer := l.one.cfg.Clock.NewTimer(tooManyPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// empty removes all Nodes from the cache.
func (l *live) empty() {
	for _, node := range l.Cluster.Nodes.All() {
		l.Cluster.Nodes.Remove(objectcache.Key(node), "")
	}
}

// watchOnce watches the Nodes until ctx ends, or until there are too many, which it returns. The
// target is available after the first list. Before each other one the cluster is identified again:
// the server may have been replaced by an empty one.
func (l *live) watchOnce(ctx context.Context) *tooManyError {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	available := false
	objectcache.Watch(quiet(ctx), "Nodes of a target cluster", objectcache.Source{
		List: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			if available {
				if err := l.identifyAgain(ctx); err != nil {
					return nil, err
				}
			}
			nodes, err := l.list(ctx, end)
			if err != nil && !available && ctx.Err() == nil {
				l.one.set(l, ofServer, fmt.Sprintf("its Nodes cannot be listed: %v", err))
			}
			return nodes, err
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return l.Cluster.Client.CoreV1().Nodes().Watch(ctx, options)
		},
		Health: l.health,
	}, "", &objectcache.Mirror[*corev1.Node]{
		Store: objectcache.StoreOf(l.Cluster.Nodes),
		Mine: func() (all []metav1.Object) {
			for _, node := range l.Cluster.Nodes.All() {
				all = append(all, node)
			}
			return all
		},
		Keep: func(node *corev1.Node) (*corev1.Node, bool) {
			trim(node)
			if machines := l.one.machines(l.one); available && l.bytes.Load()+sizeOf(node) > most(machines) {
				end(&tooManyError{nodes: l.Cluster.Nodes.Len() + 1, machines: machines})
			}
			return node, true
		},
		Listed: func() {
			if ctx.Err() == nil {
				available = true
				l.one.set(l, none, "")
			}
		},
	})
	tooMany, _ := context.Cause(ctx).(*tooManyError) //nolint:errorlint // it is not wrapped
	return tooMany
}

// identifyAgain returns an error unless the cluster is the one that the namespace had first.
// Otherwise the target is not available.
func (l *live) identifyAgain(ctx context.Context) error {
	err := l.one.identify(ctx, l.one.namespace, l.Cluster)
	if other, is := errors.AsType[*otherClusterError](err); is && ctx.Err() == nil {
		l.one.set(l, ofCluster, other.Error())
	}
	return err
}

// list lists the Nodes, in pages of which each is trimmed before the next is read. Errors: those of
// the requests; there are too many Nodes, with which it calls end.
func (l *live) list(ctx context.Context, end context.CancelCauseFunc) (*corev1.NodeList, error) {
	all, bytes, machines := &corev1.NodeList{}, int64(0), l.one.machines(l.one)
	nodes := l.Cluster.Client.CoreV1().Nodes()
	err := decode.EachPage(ctx, "Nodes", nodes.List, func(page *corev1.NodeList) {
		all.ResourceVersion = page.ResourceVersion
		for i := range page.Items {
			trim(&page.Items[i])
			bytes += sizeOf(&page.Items[i])
		}
		all.Items = append(all.Items, page.Items...)
		if bytes > most(machines) {
			end(&tooManyError{nodes: len(all.Items), machines: machines})
		}
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}
