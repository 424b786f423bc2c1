package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drainwatch"
)

// drains holds the drains of this process. Its content may be lost at any time; a drain then continues with what the target cluster
// shows.
type drains struct {
	watches  *drainwatch.Set
	detaches *detaches

	mu    sync.Mutex
	known map[errand]*draining
}

// errand identifies a drain. The result of a drain for one aim is not used for another one: a Node that was drained while its VM stays
// is drained again before its VM is deleted.
type errand struct {
	machine types.UID
	aim     aim
}

// aim is why a Node is drained.
type aim string

const (
	forDeletion     aim = "deletion"
	forPreservation aim = "preservation"
	forUpdate       aim = "update in place"
)

func newDrains() *drains {
	return &drains{watches: drainwatch.New(), detaches: newDetaches(), known: map[errand]*draining{}}
}

// draining is one drain. Only the pass of the machine uses the fields above mu.
type draining struct {
	memory   drain.Memory
	ids      volumeIDs
	reported drain.Reported
	removed  bool      // the removal of a pod or an attachment was requested
	failing  time.Time // since when the target cluster has not answered; zero while it does

	mu       sync.Mutex // guards what follows: a drain may be ended from outside of the pass
	session  *drainwatch.Session
	ended    drain.State
	isOver   bool      // no further session may begin
	released types.UID // the Node from which this process has removed our finalizer
}

// of returns the drain of a machine that is being deleted.
func (d *drains) of(machine types.UID) *draining { return d.with(machine, forDeletion) }

// with returns the drain of a machine for an aim, and begins to remember it if it is not known yet.
func (d *drains) with(machine types.UID, aim aim) *draining {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := errand{machine, aim}
	one, ok := d.known[e]
	if !ok {
		one = &draining{ids: volumeIDs{reported: map[string]string{}}}
		d.known[e] = one
	}
	return one
}

// state returns how the drain of a machine that is being deleted has ended, as far as this process knows.
func (d *drains) state(machine types.UID) drain.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.known[errand{machine, forDeletion}]; ok {
		return one.state()
	}
	return drain.Unknown
}

// over records that the VM is being deleted and nothing is left to drain, unless the drain has a result already.
func (d *drains) over(machine types.UID) {
	if d.state(machine) == drain.Unknown {
		d.of(machine).end(drain.Drained)
		d.detaches.forget(machine)
	}
}

// forget drops what is known of a machine that is gone or that another replica reconciles now.
func (d *drains) forget(machine types.UID) {
	for _, aim := range []aim{forDeletion, forPreservation, forUpdate} {
		d.drop(machine, aim)
	}
}

// drop ends a drain whose result has been used or that is not wanted any more, and drops what is known of it.
func (d *drains) drop(machine types.UID, aim aim) {
	e := errand{machine, aim}
	d.mu.Lock()
	one, ok := d.known[e]
	delete(d.known, e)
	d.mu.Unlock()
	if ok {
		one.end(drain.Unknown)
		d.detaches.forget(e.machine)
	}
}

func (d *draining) state() drain.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

// end records how the drain has ended, and ends its session.
func (d *draining) end(state drain.State) {
	d.mu.Lock()
	session := d.session
	d.session, d.isOver, d.ended = nil, true, state
	d.mu.Unlock()
	if session != nil {
		session.End()
	}
}

// begin begins a session, unless the drain has one or has ended in the meantime.
func (d *draining) begin(session func() *drainwatch.Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isOver && d.session == nil {
		d.session = session()
	}
}

// wasThere reports whether there was something to drain.
func (d *draining) wasThere() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session != nil || d.removed
}

// seen returns the session, or nil.
func (d *draining) seen() *drainwatch.Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// release records that this process has removed our finalizer from the Node.
func (d *draining) release(node types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = node
}

// isReleased reports whether this process has removed our finalizer from the Node when it marked the Node. No replica adds it again:
// only Nodes of machines that are not being deleted get it.
func (d *drains) isReleased(machine, node types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.known[errand{machine, forDeletion}]
	if !ok {
		return false
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.released == node && node != ""
}
