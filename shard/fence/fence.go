package fence

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// createMargin is how much time a create at a cloud must have before the fence: a cloud takes
// seconds to accept one, and what it accepts after the fence is found by the next owner only by the
// machine's UID.
const createMargin = 3 * time.Second

// passMargin is how much time the pass of a key must have before the fence, or it waits for the
// next renewal. A replica that is so slow that its own passes delay its renewals does less this
// way, instead of reaching its fence with work in flight. It is RenewEvery and RequestTimeout of
// membership.DefaultConfig together, so that with any valid fence, which is more than twice as
// long, one renewal without an answer delays no pass.
const passMargin = 4 * time.Second

// Fence records what this session owns, and permits or refuses the work that is about to begin. It
// is safe for concurrent use. Create it with New; package session keeps it current.
type Fence struct {
	replica, session string
	time             *Time
	refusals         *prometheus.CounterVec
	faultPoint       *FaultPoint // nil without --debug-hooks

	until       atomic.Pointer[deadline]          // the session's fence
	leaderUntil atomic.Pointer[membership.Moment] // the leadership's fence; the session's fence applies to the leadership, too
	slots       []*ownershipState
	leadership  *ownershipState
}

// deadline is the session's fence until another one is set.
type deadline struct {
	membership.Moment
	replaced chan struct{} // closed when another one is set
}

// Entitlement reports what the protocol permits a session.
type Entitlement interface {
	// Suspended reports whether the fence has passed.
	Suspended() bool
	// Fence is the moment after which the session may begin no work.
	Fence() membership.Moment
	// Entitled returns the epoch under which the session holds a slot; ok is false if it does not.
	Entitled(slot int) (epoch int64, ok bool)
}

// action is the kind of work that is about to begin.
type action uint8

const (
	pass   action = iota // a key of a runner
	write                // a mutating request
	read                 // a call of a driver that only reads
	call                 // any other call of a driver
	create               // a call of a driver that creates a VM
)

// New returns a Fence under which nothing is allowed yet, and registers its counter of refusals.
// The fault point may be nil.
func New(replica, session string, slots int, t *Time, registerer prometheus.Registerer, point *FaultPoint) *Fence {
	f := &Fence{
		replica: replica, session: session, time: t, refusals: newRefusals(registerer), faultPoint: point, leadership: &ownershipState{},
	}
	f.until.Store(&deadline{replaced: make(chan struct{})})
	f.leaderUntil.Store(&membership.Moment{})
	for range slots {
		f.slots = append(f.slots, &ownershipState{})
	}
	return f
}

// newRefusals returns the counter of refusals, registered, with a series for each reason: the
// increase of one that appears later would miss its first value, and one request without ownership
// is a defect.
func newRefusals(registerer prometheus.Registerer) *prometheus.CounterVec {
	refusals := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcf_refused_total", Help: "Requests and calls of drivers that were not begun, by reason: unowned, lost, stopping or fenced.",
	}, []string{"reason"})
	for _, why := range []Refusal{Unowned, Lost, Stopping, Fenced} {
		refusals.WithLabelValues(string(why))
	}
	registerer.MustRegister(refusals)
	return refusals
}

// stateOf returns the state of an ownership; nil for none, and for a slot that the fleet does not
// have.
func (f *Fence) stateOf(o Ownership) *ownershipState {
	switch {
	case o.kind == ofLeader:
		return f.leadership
	case o.kind == ofSlot && o.slot >= 0 && o.slot < len(f.slots):
		return f.slots[o.slot]
	}
	return nil
}

// begin counts work as in flight, if it may begin now. done has to be called when the work has
// ended.
func (f *Fence) begin(o Ownership, a action) (done func(), why Refusal) {
	if o.kind == ofProtocol {
		return func() {}, f.maySend(o.need)
	}
	if o.kind == ofUser && a == write {
		return func() {}, ""
	}
	h := f.stateOf(o)
	if h == nil {
		return nil, Unowned
	}
	if f.passed(o.kind, a) {
		return nil, Fenced
	}
	return h.begin(o.epoch, a)
}

// passed reports whether the fence of an ownership has passed, or is too near for the action.
func (f *Fence) passed(k kind, a action) bool {
	now := f.time.Moment()
	if a == create {
		now = now.Add(createMargin)
	}
	return now.Reached(f.Until()) || k == ofLeader && now.Reached(*f.leaderUntil.Load())
}

// awaitRenewal waits while the session's fence is near, or has passed and the session does not know
// it yet. It returns false if the session is suspended or ctx has ended.
func (f *Fence) awaitRenewal(ctx context.Context) bool {
	for {
		fence := f.until.Load()
		switch {
		case fence.IsZero():
			return false
		case !f.time.Moment().Add(passMargin).Reached(fence.Moment):
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-fence.replaced:
		}
	}
}

// maySend checks a request about Leases; "" means that it may be sent.
func (f *Fence) maySend(need membership.Need) Refusal {
	switch need {
	case membership.NeedNothing:
		return ""
	case membership.NeedFence:
		if f.passed(ofProtocol, write) {
			return Fenced
		}
		return ""
	case membership.NeedLeadership:
		if f.passed(ofLeader, write) {
			return Fenced
		}
		if !f.leadership.isHeld() {
			return Lost
		}
		return ""
	}
	return Unowned
}

// Follow records the session's fence, and to which of the slots given it is entitled.
func (f *Fence) Follow(e Entitlement, slots []int) {
	until := membership.Moment{}
	if !e.Suspended() {
		until = e.Fence()
		f.leadership.resume()
	}
	f.move(until)
	for _, slot := range slots {
		f.slots[slot].set(e.Entitled(slot))
	}
}

func (f *Fence) move(until membership.Moment) {
	last := f.until.Swap(&deadline{Moment: until, replaced: make(chan struct{})})
	close(last.replaced)
}

// Suspend permits no work until Follow, and ends the contexts of all passes.
func (f *Fence) Suspend() {
	f.move(membership.Moment{})
	for _, h := range f.all() {
		h.stop()
		h.cancel(Fenced)
	}
}

// Close ends all ownership permanently.
func (f *Fence) Close() {
	f.Suspend()
	for _, h := range f.all() {
		h.set(0, false)
	}
}

// Stop permits no more passes and calls of drivers for a slot. Passes that were admitted may still
// write.
func (f *Fence) Stop(slot int) { f.slots[slot].stop() }

// Cancel stops a slot, and ends the contexts of its passes.
func (f *Fence) Cancel(slot int) {
	f.slots[slot].stop()
	f.slots[slot].cancel(Stopping)
}

// Resume undoes Stop.
func (f *Fence) Resume(slot int) { f.slots[slot].resume() }

// Open admits passes of a slot as long as it is held under this epoch.
func (f *Fence) Open(slot int, epoch int64) { f.slots[slot].setOpen(epoch, f.time.Now()) }

// Arrived records, for the traces of passes, the W3C traceparent of the hand-over or take-over by
// which a slot has come under this epoch.
func (f *Fence) Arrived(slot int, epoch int64, traceparent string) {
	f.slots[slot].arrived(epoch, traceparent)
}

// Shut admits no pass of a slot until Open, and ends the contexts of its passes because the slot is
// lost.
func (f *Fence) Shut(slot int) {
	f.slots[slot].setClosed()
	f.slots[slot].cancel(Lost)
}

// BeginLeading gives the session the leadership. The leader may begin work when MoveLeaderFence has
// moved its fence, too.
func (f *Fence) BeginLeading() { f.leadership.renew(f.time.Now()) }

// EndLeading removes the leadership from the session.
func (f *Fence) EndLeading() {
	f.leadership.set(0, false)
	f.MoveLeaderFence(membership.Moment{})
}

// MoveLeaderFence sets the moment after which the leader may begin no work; the zero Moment has
// passed already.
func (f *Fence) MoveLeaderFence(until membership.Moment) { f.leaderUntil.Store(&until) }

// OnIdle calls idle once when no work of a slot is in flight.
func (f *Fence) OnIdle(slot int, idle func()) { f.slots[slot].onIdle(idle) }

// OnAllIdle calls idle once when no work of any slot, or of the leader, is in flight.
func (f *Fence) OnAllIdle(idle func()) {
	all := f.all()
	remaining := atomic.Int64{}
	remaining.Store(int64(len(all)))
	for _, h := range all {
		h.onIdle(func() {
			if remaining.Add(-1) == 0 {
				idle()
			}
		})
	}
}

func (f *Fence) all() []*ownershipState { return append(slices.Clone(f.slots), f.leadership) }

// Busy returns how much work is in flight.
func (f *Fence) Busy() int {
	busy := 0
	for _, h := range f.all() {
		busy += h.busy()
	}
	return busy
}

// Acts reports whether the session's fence has not passed: until then no other session can have
// acquired the slots that this one holds.
func (f *Fence) Acts() bool { return !f.passed(ofSlot, write) }

// Until returns the session's fence; the zero Moment while no work may begin.
func (f *Fence) Until() membership.Moment { return f.until.Load().Moment }
