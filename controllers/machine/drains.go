package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drainwatch"
)

// drains are the drains that this process is about. What is in here may be lost at any time.
type drains struct {
	watches  *drainwatch.Set
	detaches *detaches

	mu    sync.Mutex
	known map[errand]*draining
}

// errand is what a drain is for. That a Node was drained whose VM stays says nothing when its VM is to go.
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

// draining is one drain. Its fields belong to the pass of the machine, except where that is said.
type draining struct {
	memory   drain.Memory
	ids      volumeIDs
	reported drain.Reported
	removed  bool      // something was removed
	failing  time.Time // since when the target cluster has not answered; zero while it does

	mu       sync.Mutex // for what follows, which others may end
	session  *drainwatch.Session
	ended    drain.State
	isOver   bool      // nobody may begin a session any more
	released types.UID // the Node that our finalizer was taken off
}

// of returns the drain of a machine that is being deleted.
func (d *drains) of(machine types.UID) *draining { return d.with(machine, forDeletion) }

// with returns the drain of a machine that has an aim.
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

// over notes that the VM goes: there is nothing to drain any more, if there was.
func (d *drains) over(machine types.UID) {
	if d.state(machine) == drain.Unknown {
		d.of(machine).end(drain.Drained)
		d.detaches.forget(machine)
	}
}

// forget drops what is known of a machine that is gone, or somebody else's.
func (d *drains) forget(machine types.UID) {
	for _, aim := range []aim{forDeletion, forPreservation, forUpdate} {
		d.drop(machine, aim)
	}
}

// drop drops what is known of a drain that has ended or is not wanted any more.
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

// end notes how the drain has ended, and watches nothing for it any more.
func (d *draining) end(state drain.State) {
	d.mu.Lock()
	session := d.session
	d.session, d.isOver, d.ended = nil, true, state
	d.mu.Unlock()
	if session != nil {
		session.End()
	}
}

// begin begins a session, unless the drain has ended meanwhile.
func (d *draining) begin(session func() *drainwatch.Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isOver && d.session == nil {
		d.session = session()
	}
}

// wasThere says that there was something to drain.
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

// release notes that our finalizer is off the Node.
func (d *draining) release(node types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = node
}

// isReleased says that this process has taken our finalizer off the Node when it marked it. Nobody puts it on again:
// only Nodes of machines that stay get it.
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
