package slotlabel

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// Admission wraps the gates of the controllers. It rejects objects that must not be reconciled
// although their slot is held, and remembers rejected keys. The zero value cannot be used:
// NewAdmission returns one that can.
type Admission struct {
	// mayRun reports whether an object may be reconciled; it is called without any lock held.
	mayRun func(kind policy.Kind, key types.NamespacedName) bool

	mu       sync.Mutex
	running  map[object]int              // number of running passes
	blocked  map[object]func()           // called after the last pass has ended; nil without a callback
	rejected map[object]map[*gate]func() // enqueues the key again, for each controller whose pass was rejected
}

type object struct {
	kind policy.Kind
	key  types.NamespacedName
}

// NewAdmission returns an Admission that rejects what mayRun rejects.
func NewAdmission(mayRun func(kind policy.Kind, key types.NamespacedName) bool) *Admission {
	return &Admission{mayRun: mayRun, running: map[object]int{}, blocked: map[object]func(){}, rejected: map[object]map[*gate]func(){}}
}

// Gate wraps the gate of a kind. The gate that it returns is for one Runner, which Notify enqueues
// keys in.
func (a *Admission) Gate(kind policy.Kind, inner runner.Gate[types.NamespacedName]) runner.Notifier[types.NamespacedName] {
	return &gate{admission: a, kind: kind, inner: inner, enqueue: func(types.NamespacedName) {}}
}

type gate struct {
	admission *Admission
	kind      policy.Kind
	inner     runner.Gate[types.NamespacedName]
	enqueue   func(types.NamespacedName)
}

// Notify sets the function that enqueues rejected keys again. It is called before Admit.
func (g *gate) Notify(enqueue func(types.NamespacedName)) { g.enqueue = enqueue }

// Admit calls the inner gate, and then checks the admission.
func (g *gate) Admit(ctx context.Context, key types.NamespacedName) (context.Context, func(), bool) {
	owned, done, ok := g.inner.Admit(ctx, key)
	if !ok {
		return nil, nil, false
	}
	o := object{g.kind, key}
	if !g.admission.begin(o, g) {
		done()
		return nil, nil, false
	}
	return owned, func() {
		done()
		g.admission.end(o)
	}, true
}

// Group returns the group of the inner gate, if it has any.
func (g *gate) Group(key types.NamespacedName) int {
	if grouper, ok := g.inner.(runner.Grouper[types.NamespacedName]); ok {
		return grouper.Group(key)
	}
	return 0
}

func (a *Admission) begin(o object, by *gate) bool {
	a.mu.Lock()
	if a.rejected[o] == nil {
		a.rejected[o] = map[*gate]func(){}
	}
	a.rejected[o][by] = func() { by.enqueue(o.key) } // before mayRun: the awaited change may happen during the call
	a.mu.Unlock()
	may := a.mayRun(o.kind, o.key)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, blocked := a.blocked[o]; blocked || !may {
		return false
	}
	if delete(a.rejected[o], by); len(a.rejected[o]) == 0 {
		delete(a.rejected, o)
	}
	a.running[o]++
	return true
}

func (a *Admission) end(o object) {
	a.mu.Lock()
	if a.running[o]--; a.running[o] > 0 {
		a.mu.Unlock()
		return
	}
	delete(a.running, o)
	empty := a.blocked[o]
	a.mu.Unlock()
	if empty != nil {
		empty()
	}
}

// Block prevents an object from being reconciled until Unblock, and reports whether no pass of it
// runs. If one does, empty is called after it has ended.
func (a *Admission) Block(kind policy.Kind, key types.NamespacedName, empty func()) (isEmpty bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := object{kind, key}
	if a.running[o] > 0 {
		a.blocked[o] = empty
		return false
	}
	a.blocked[o] = nil
	return true
}

// Unblock ends Block.
func (a *Admission) Unblock(kind policy.Kind, key types.NamespacedName) {
	a.mu.Lock()
	o := object{kind, key}
	_, blocked := a.blocked[o]
	delete(a.blocked, o)
	a.mu.Unlock()
	if blocked {
		a.again(o)
	}
}

// again enqueues an object for all controllers whose passes of it were rejected.
func (a *Admission) again(o object) {
	a.mu.Lock()
	rejected := a.rejected[o]
	delete(a.rejected, o)
	a.mu.Unlock()
	for _, enqueue := range rejected {
		enqueue()
	}
}

// Retry enqueues all rejected objects of a namespace.
func (a *Admission) Retry(namespace string) {
	a.retry(func(o object) bool { return o.key.Namespace == namespace })
}

// Forget removes the state of an object that was deleted, or has left the slots of this replica.
func (a *Admission) Forget(kind policy.Kind, key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.blocked, object{kind, key})
	delete(a.rejected, object{kind, key})
}

func (a *Admission) retry(which func(object) bool) {
	var again []func()
	a.mu.Lock()
	for o, rejected := range a.rejected {
		if which(o) {
			again = slices.AppendSeq(again, maps.Values(rejected))
			delete(a.rejected, o)
		}
	}
	a.mu.Unlock()
	for _, enqueue := range again {
		enqueue()
	}
}
