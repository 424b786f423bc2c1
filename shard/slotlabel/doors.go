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

// Doors stand before the gates of the controllers. They keep closed what must not be reconciled although its slot is
// held, and remember who has knocked. The zero value is not ready: make them with NewDoors.
type Doors struct {
	// mayEnter says whether an object may be reconciled; it is asked without any lock held.
	mayEnter func(kind policy.Kind, key types.NamespacedName) bool

	mu      sync.Mutex
	inside  map[object]int              // passes that run
	closed  map[object]func()           // what to call when the last pass has ended; nil when nobody waits
	knocked map[object]map[*gate]func() // enqueues the key again, of each controller that was turned away
}

type object struct {
	kind policy.Kind
	key  types.NamespacedName
}

// NewDoors makes Doors that let nobody in whom mayEnter refuses.
func NewDoors(mayEnter func(kind policy.Kind, key types.NamespacedName) bool) *Doors {
	return &Doors{mayEnter: mayEnter, inside: map[object]int{}, closed: map[object]func(){}, knocked: map[object]map[*gate]func(){}}
}

// Gate puts the doors of a kind before a gate. The gate that it returns is for one Runner, which Notify makes known to it.
func (d *Doors) Gate(kind policy.Kind, inner runner.Gate[types.NamespacedName]) runner.Notifier[types.NamespacedName] {
	return &gate{doors: d, kind: kind, inner: inner, enqueue: func(types.NamespacedName) {}}
}

type gate struct {
	doors   *Doors
	kind    policy.Kind
	inner   runner.Gate[types.NamespacedName]
	enqueue func(types.NamespacedName)
}

// Notify sets the function that enqueues keys again which were refused. It is called before Admit.
func (g *gate) Notify(enqueue func(types.NamespacedName)) { g.enqueue = enqueue }

// Admit asks the inner gate, and then the doors.
func (g *gate) Admit(ctx context.Context, key types.NamespacedName) (context.Context, func(), bool) {
	owned, done, ok := g.inner.Admit(ctx, key)
	if !ok {
		return nil, nil, false
	}
	o := object{g.kind, key}
	if !g.doors.enter(o, g) {
		done()
		return nil, nil, false
	}
	return owned, func() {
		done()
		g.doors.leave(o)
	}, true
}

// Group is that of the inner gate, if it knows any.
func (g *gate) Group(key types.NamespacedName) int {
	if grouper, ok := g.inner.(runner.Grouper[types.NamespacedName]); ok {
		return grouper.Group(key)
	}
	return 0
}

func (d *Doors) enter(o object, by *gate) bool {
	d.mu.Lock()
	if d.knocked[o] == nil {
		d.knocked[o] = map[*gate]func(){}
	}
	d.knocked[o][by] = func() { by.enqueue(o.key) } // before mayEnter: what it waits for may come while it answers
	d.mu.Unlock()
	may := d.mayEnter(o.kind, o.key)
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, closed := d.closed[o]; closed || !may {
		return false
	}
	if delete(d.knocked[o], by); len(d.knocked[o]) == 0 {
		delete(d.knocked, o)
	}
	d.inside[o]++
	return true
}

func (d *Doors) leave(o object) {
	d.mu.Lock()
	if d.inside[o]--; d.inside[o] > 0 {
		d.mu.Unlock()
		return
	}
	delete(d.inside, o)
	empty := d.closed[o]
	if empty != nil {
		d.closed[o] = nil
	}
	d.mu.Unlock()
	if empty != nil {
		empty()
	}
}

// Close keeps an object from being reconciled until Open, and says whether no pass of it runs. If one does, empty is
// called when it has ended.
func (d *Doors) Close(kind policy.Kind, key types.NamespacedName, empty func()) (isEmpty bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := object{kind, key}
	if d.inside[o] > 0 {
		d.closed[o] = empty
		return false
	}
	d.closed[o] = nil
	return true
}

// Open ends Close.
func (d *Doors) Open(kind policy.Kind, key types.NamespacedName) {
	d.mu.Lock()
	o := object{kind, key}
	_, closed := d.closed[o]
	delete(d.closed, o)
	d.mu.Unlock()
	if closed {
		d.again(o)
	}
}

// again has everybody looked at again who was turned away from an object.
func (d *Doors) again(o object) {
	d.mu.Lock()
	knocks := d.knocked[o]
	delete(d.knocked, o)
	d.mu.Unlock()
	for _, enqueue := range knocks {
		enqueue()
	}
}

// Retry has everybody of a namespace looked at again who was turned away.
func (d *Doors) Retry(namespace string) {
	d.retry(func(o object) bool { return o.key.Namespace == namespace })
}

// Forget drops what is remembered of an object that is gone, or has left the slots of this replica.
func (d *Doors) Forget(kind policy.Kind, key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.closed, object{kind, key})
	delete(d.knocked, object{kind, key})
}

func (d *Doors) retry(which func(object) bool) {
	var again []func()
	d.mu.Lock()
	for o, knocks := range d.knocked {
		if which(o) {
			again = slices.AppendSeq(again, maps.Values(knocks))
			delete(d.knocked, o)
		}
	}
	d.mu.Unlock()
	for _, enqueue := range again {
		enqueue()
	}
}
