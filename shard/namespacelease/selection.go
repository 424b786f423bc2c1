package namespacelease

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
)

// selection is the state of a fleet that serves the namespaces which a selector selects. Another
// fleet acquires the Leases of a namespace that is left a moment after they are released, so work
// has to end before, and the cache of a replica that gets the slot then is no proof that the fleet
// still holds them. It is guarded by the lock of NamespaceLeases.
type selection struct {
	passes  map[string]int  // running passes of each namespace
	leaving map[string]bool // namespaces whose Leases are released when no pass runs
	proven  map[string]bool // namespaces whose Leases named the fleet when they were read live, since their slot was opened
	drops   int             // how often slots were lost
	waiting map[string]bool // namespaces with work that are not known to be selected or not
}

func newSelection() selection {
	return selection{passes: map[string]int{}, leaving: map[string]bool{}, proven: map[string]bool{}, waiting: map[string]bool{}}
}

// selected returns whether a namespace is selected.
func (l *NamespaceLeases) selected(namespace string) policy.Selection {
	if l.cfg.Selection == nil {
		return policy.Selected
	}
	return l.cfg.Selection(namespace)
}

// SelectionChanged is called with every namespace that is selected now, or not any more, and with
// "" when this is known of all of them.
func (l *NamespaceLeases) SelectionChanged(namespace string) {
	if l.cfg.Selection == nil {
		return
	}
	changed := map[string]bool{namespace: true}
	l.mu.Lock()
	if namespace == "" {
		changed, l.waiting = l.waiting, map[string]bool{}
	} else {
		l.forget(namespace)
	}
	l.mu.Unlock()
	for changed := range changed {
		l.enqueueOwner(changed)
		l.notify(changed)
	}
	if namespace != "" {
		return
	}
	for _, informer := range l.informers {
		for _, key := range informer.GetStore().ListKeys() {
			if of, _, err := cache.SplitMetaNamespaceKey(key); err == nil {
				l.enqueueOwner(of)
			}
		}
	}
}

// enqueueOwner enqueues a namespace for the holder of its slot.
func (l *NamespaceLeases) enqueueOwner(namespace string) {
	l.runner.Enqueue(Key{namespace, l.cfg.SlotOf(namespace)})
}

// waits records that a namespace has work and is not known to be selected or not. It returns false.
func (l *NamespaceLeases) waits(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[namespace] = true
	return false
}

// Dropped is called with slots that this replica has lost.
func (l *NamespaceLeases) Dropped(slots []int) {
	lost := map[int]bool{}
	for _, slot := range slots {
		lost[slot] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops++
	maps.DeleteFunc(l.proven, func(namespace string, _ bool) bool { return lost[l.cfg.SlotOf(namespace)] })
}

func (l *NamespaceLeases) isProven(namespace string) bool {
	if l.cfg.Selection == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proven[namespace]
}

// prove reads the Leases live that name the fleet in the cache: an earlier holder of the slot may
// have released them.
func (l *NamespaceLeases) prove(ctx context.Context, namespace string, leases [2]policy.Lease) error {
	if !policy.Served(l.cfg.Fleet, leases, false) || l.isProven(namespace) {
		return nil
	}
	l.mu.Lock()
	drops := l.drops
	l.mu.Unlock()
	for _, name := range names() {
		lease, err := l.cfg.Client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && holderOf(lease) != l.cfg.Fleet {
			return nil // the watch will show it
		}
		if err != nil {
			return fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
		}
	}
	l.mu.Lock()
	proven := l.drops == drops
	if proven {
		l.proven[namespace] = true
		delete(l.leaving, namespace)
	}
	l.mu.Unlock()
	if !proven {
		return fmt.Errorf("slots were lost while the Leases of namespace %s were read", namespace)
	}
	l.notify(namespace)
	return nil
}

// leave admits no more work in a namespace, and reports whether any runs. If so, the holder of the
// slot is enqueued when it has ended.
func (l *NamespaceLeases) leave(namespace string) (busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.proven, namespace)
	busy = l.passes[namespace] > 0
	l.leaving[namespace] = busy
	if !busy {
		delete(l.leaving, namespace)
	}
	return busy
}

// begin counts a pass in a namespace, until the function that it returns is called.
func (l *NamespaceLeases) begin(namespace string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passes[namespace]++
	return func() {
		l.mu.Lock()
		left := false
		if l.passes[namespace]--; l.passes[namespace] == 0 {
			left = l.leaving[namespace]
			delete(l.passes, namespace)
			delete(l.leaving, namespace)
		}
		l.mu.Unlock()
		if left {
			l.enqueueOwner(namespace)
		}
	}
}

// Counted returns a Gate that counts the passes of each namespace, which end before the Leases of
// one that is not selected any more are released. Each pass asks Served or KeptOut after it was
// admitted. Keys of the namespace "" are not counted.
func Counted[K comparable](leases *NamespaceLeases, namespace func(key K) string, inner runner.Grouper[K]) runner.Gate[K] {
	if leases.cfg.Selection == nil {
		return inner
	}
	return &counted[K]{Grouper: inner, leases: leases, namespace: namespace}
}

type counted[K comparable] struct {
	runner.Grouper[K]

	leases    *NamespaceLeases
	namespace func(key K) string
}

// Admit calls the inner Gate, and counts.
func (c *counted[K]) Admit(ctx context.Context, key K) (context.Context, func(), bool) {
	namespace := c.namespace(key)
	if namespace == "" {
		return c.Grouper.Admit(ctx, key)
	}
	end := c.leases.begin(namespace) // before it is checked whether the namespace is served
	owned, done, ok := c.Grouper.Admit(ctx, key)
	if !ok {
		end()
		return nil, nil, false
	}
	return owned, func() { done(); end() }, true
}
