package update

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// watches has the Nodes that the pools of this replica select by labels. Each pool has its own
// watch, which the API server filters.
type watches struct {
	nodes   corev1client.NodeInterface
	changed func(pool string)
	node    func(before, after *corev1.Node)
	kick    chan struct{}

	mu      sync.Mutex
	wanted  map[string]string // selectors by pool
	running map[string]*watched
}

// watched is the watch of a pool's Nodes.
type watched struct {
	selector string
	nodes    *objectcache.Store[*corev1.Node]
	stop     context.CancelFunc
	isListed bool // guarded by mu of the watches
}

func newWatches(nodes corev1client.NodeInterface, changed func(pool string), node func(before, after *corev1.Node)) *watches {
	return &watches{
		nodes: nodes, changed: changed, node: node, kick: make(chan struct{}, 1), wanted: map[string]string{}, running: map[string]*watched{},
	}
}

// get returns the Nodes that a pool selects. ok is false while they were not listed; changed is
// called when they were.
func (w *watches) get(pool, selector string) (nodes []*corev1.Node, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.running[pool]; one != nil && one.selector == selector {
		if !one.isListed {
			return nil, false
		}
		return one.nodes.All(), true
	}
	w.wanted[pool] = selector
	w.again()
	return nil, false
}

// drop ends the watch of a pool.
func (w *watches) drop(pool string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, is := w.wanted[pool]; is {
		delete(w.wanted, pool)
		w.again()
	}
}

func (w *watches) again() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run watches until ctx ends, and returns when all watches have ended.
func (w *watches) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
			w.step(ctx, &running)
		}
	}
}

// step ends the watches that are not wanted any more, and begins those that are missing.
func (w *watches) step(ctx context.Context, running *sync.WaitGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for pool, one := range maps.Clone(w.running) {
		if selector, is := w.wanted[pool]; !is || selector != one.selector {
			one.stop()
			delete(w.running, pool)
		}
	}
	for pool, selector := range w.wanted {
		if w.running[pool] != nil {
			continue
		}
		one := &watched{selector: selector, nodes: objectcache.NewStore[*corev1.Node]()}
		one.nodes.OnChange(func(before, after *corev1.Node) {
			w.node(before, after)
			if matters(before, after) {
				w.changed(pool)
			}
		})
		var inner context.Context
		inner, one.stop = context.WithCancel(ctx)
		w.running[pool] = one
		running.Go(func() { w.watch(inner, pool, one) })
	}
}

func (w *watches) watch(ctx context.Context, pool string, one *watched) {
	objectcache.Watch(ctx, "Nodes of MachineConfigPool "+pool, objectcache.From(w.nodes), one.selector, &objectcache.Mirror[*corev1.Node]{
		Store: one.nodes, Mine: one.nodes.Each,
		Listed: func() {
			w.mu.Lock()
			one.isListed = true
			w.mu.Unlock()
			w.changed(pool)
		},
	})
}

// list returns the Nodes that a selector selects as the API server has them, of which keep returns
// true. Those that are read, and that are kept, have so many bytes together at most; 0 is no bound.
func (w *watches) list(
	ctx context.Context, selector string, keep func(*corev1.Node) bool, mostRead, mostKept int64,
) (nodes []*corev1.Node, err error) {
	kept := int64(0)
	all := objectcache.PagesAtMost(mostRead, w.nodes.List)
	err = decode.EachPage(ctx, "Nodes", func(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
		options.LabelSelector = selector
		page, err := all(ctx, options)
		if err == nil && mostKept > 0 && kept > mostKept {
			err = fmt.Errorf("expected Nodes of together at most %d MiB, got more", mostKept>>20)
		}
		return page, err
	}, func(page *corev1.NodeList) {
		for i := range page.Items {
			if node := &page.Items[i]; keep(node) {
				objectcache.Trim(node)
				nodes = append(nodes, node)
				kept += objectcache.SizeOf(node)
			}
		}
	})
	return nodes, err
}
