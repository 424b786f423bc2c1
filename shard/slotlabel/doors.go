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

// Doors wrap the gates of the controllers. They reject objects that must not be reconciled although their slot is held, and
// remember rejected keys. The zero value cannot be used: NewDoors returns one that can.
type Doors struct {
	// mayEnter reports whether an object may be reconciled; it is called without any lock held.
	mayEnter func(kind policy.Kind, key types.NamespacedName) bool

	mu      sync.Mutex
	inside  map[object]int              // number of running passes
	closed  map[object]func()           // called after the last pass has ended; nil without a callback
	knocked map[object]map[*gate]func() // enqueues the key again, for each controller whose pass was rejected
}

type object struct {
	kind policy.Kind
	key  types.NamespacedName
}

// NewDoors returns Doors that reject what mayEnter rejects.
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

// Notify sets the function that enqueues rejected keys again. It is called before Admit.
func (g *gate) Notify(enqueue func(types.NamespacedName)) { g.enqueue = enqueue }

// Admit calls the inner gate, and then checks the doors.
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

// Group returns the group of the inner gate, if it has any.
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
	d.knocked[o][by] = func() { by.enqueue(o.key) } // before mayEnter: the awaited change may happen during the call
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

// Close prevents an object from being reconciled until Open, and reports whether no pass of it runs. If one does, empty is
// called after it has ended.
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

// again enqueues an object for all controllers whose passes of it were rejected.
func (d *Doors) again(o object) {
	d.mu.Lock()
	knocks := d.knocked[o]
	delete(d.knocked, o)
	d.mu.Unlock()
	for _, enqueue := range knocks {
		enqueue()
	}
}

// Retry enqueues all rejected objects of a namespace.
func (d *Doors) Retry(namespace string) {
	d.retry(func(o object) bool { return o.key.Namespace == namespace })
}

// Forget removes the state of an object that was deleted, or has left the slots of this replica.
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
