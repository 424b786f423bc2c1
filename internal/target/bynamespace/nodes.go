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
	// bytesOfTarget and bytesOfMachine bound the memory of the Nodes of a target that are cached. A
	// Node takes some 10 kB when it is trimmed, and machines are a part of the Nodes.
	bytesOfTarget  = 32 << 20
	bytesOfMachine = 64 << 10
	// timesMost is how many times as many bytes the answers with a list of Nodes may have: a Node is
	// sent with up to 15 kB, with its images.
	timesMost = 2
	// tooManyPause is the time from reading too many Nodes, or a list without end, to reading them
	// again.
	tooManyPause = 5 * time.Minute
	// nodesPage is how many Nodes are in a page: each has about 600 values, and an answer 50,000.
	nodesPage = 50
)

// most returns how many bytes of Nodes are cached of a target with so many machines.
func most(machines int) int64 { return bytesOfTarget + int64(machines)*bytesOfMachine }

// sizeOf returns the memory that a Node takes, 0 for nil.
func sizeOf(node *corev1.Node) int64 {
	if node == nil {
		return 0
	}
	return objectcache.SizeOf(node)
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

// endlessError means that the list of the Nodes has no end.
type endlessError struct{ error }

func (e *endlessError) Error() string {
	return fmt.Sprintf("its Nodes cannot be listed: %v; they are read again in %s at the earliest", e.error, tooManyPause)
}

// Unwrap returns why.
func (e *endlessError) Unwrap() error { return e.error }

// watch watches the Nodes until ctx ends, and again after a pause if there were too many.
func (l *live) watch(ctx context.Context) {
	l.one.awaits(l, "its Nodes are being listed")
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

// watchOnce watches the Nodes until ctx ends. The target is available after the first list. Before
// each other one the cluster is identified again: the server may have been replaced by an empty
// one. Errors: *tooManyError, *endlessError; after them nothing is watched.
func (l *live) watchOnce(ctx context.Context) error {
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
	cause := context.Cause(ctx)
	if errors.As(cause, new(*tooManyError)) || errors.As(cause, new(*endlessError)) {
		return cause
	}
	return nil
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
// the requests; there are too many Nodes, or pages without end, with which it calls end.
func (l *live) list(ctx context.Context, end context.CancelCauseFunc) (*corev1.NodeList, error) {
	all, bytes, machines := &corev1.NodeList{}, int64(0), l.one.machines(l.one)
	nodes := l.Cluster.Client.CoreV1().Nodes()
	reading := decode.AtMost(ctx, timesMost*most(machines))
	pages := metav1.ListOptions{Limit: nodesPage}
	err := decode.UntilPage(reading, "Nodes", pages, nodes.List, func(page *corev1.NodeList, _ []*decode.Failure) bool {
		all.ResourceVersion = page.ResourceVersion
		for i := range page.Items {
			objectcache.Trim(&page.Items[i])
			bytes += sizeOf(&page.Items[i])
		}
		all.Items = append(all.Items, page.Items...)
		if bytes > most(machines) {
			end(&tooManyError{nodes: len(all.Items), machines: machines})
		}
		return ctx.Err() != nil
	})
	if errors.As(err, new(*decode.EndlessError)) {
		end(&endlessError{err})
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}
