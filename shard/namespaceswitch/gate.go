package namespaceswitch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// errSwitchedOff is the cause with which the contexts of passes end.
var errSwitchedOff = errors.New("the namespace was switched off")

// Gate admits the keys of one Runner in namespaces that are switched on. Keys that were refused, or
// whose passes were interrupted, are enqueued when their namespace is switched on.
type Gate[K comparable] struct {
	switches    *Switches
	inner       runner.Gate[K]
	namespaceOf func(K) string
	enqueue     func(K) // nil without Notify

	mu      sync.Mutex
	waiting map[string]map[K]bool // by namespace
}

// Guard returns a gate that asks the switch of a key's namespace before it asks inner; inner itself
// without Switches. A key whose namespace is "" has no switch. It is called before Run.
func Guard[K comparable](s *Switches, inner runner.Gate[K], namespaceOf func(K) string) runner.Gate[K] {
	if s == nil {
		return inner
	}
	g := &Gate[K]{switches: s, inner: inner, namespaceOf: namespaceOf, waiting: map[string]map[K]bool{}}
	s.OnChange(g.changed)
	return g
}

// Notify sets the function that enqueues keys again. It is called before Admit.
func (g *Gate[K]) Notify(enqueue func(K)) {
	g.enqueue = enqueue
	if inner, ok := g.inner.(runner.Notifier[K]); ok {
		inner.Notify(enqueue)
	}
}

// Group returns the group of the inner gate, if it has any.
func (g *Gate[K]) Group(key K) int {
	if inner, ok := g.inner.(runner.Grouper[K]); ok {
		return inner.Group(key)
	}
	return 0
}

// Admit asks the switch, and then the inner gate. The context ends when the namespace is switched
// off.
func (g *Gate[K]) Admit(ctx context.Context, key K) (context.Context, func(), bool) {
	namespace := g.namespaceOf(key)
	if namespace == "" {
		return g.inner.Admit(ctx, key)
	}
	g.wait(namespace, key) // before the switch is asked: it may be switched on in between
	ctx, end, on := g.switches.begin(ctx, namespace)
	if !on {
		return nil, nil, false
	}
	g.forget(namespace, key)
	owned, done, ok := g.inner.Admit(ctx, key)
	if !ok {
		end()
		return nil, nil, false
	}
	return owned, func() {
		done()
		if errors.Is(context.Cause(ctx), errSwitchedOff) {
			g.wait(namespace, key)
			if g.switches.IsOn(namespace) { // it is on again, and that was announced before
				g.changed(namespace)
			}
		}
		end()
	}, true
}

// wait records that a key waits for its namespace to be switched on, unless its object is unknown:
// one that was deleted need not, and one that appears is enqueued then.
func (g *Gate[K]) wait(namespace string, key K) {
	if g.enqueue == nil || g.Group(key) < 0 {
		g.forget(namespace, key)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting[namespace] == nil {
		g.waiting[namespace] = map[K]bool{}
	}
	g.waiting[namespace][key] = true
}

func (g *Gate[K]) forget(namespace string, key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.waiting[namespace], key); len(g.waiting[namespace]) == 0 {
		delete(g.waiting, namespace)
	}
}

// changed enqueues what waits for a namespace that is switched on.
func (g *Gate[K]) changed(namespace string) {
	if !g.switches.IsOn(namespace) {
		return
	}
	g.mu.Lock()
	again := slices.Collect(maps.Keys(g.waiting[namespace]))
	delete(g.waiting, namespace)
	g.mu.Unlock()
	for _, key := range again {
		g.enqueue(key)
	}
}
