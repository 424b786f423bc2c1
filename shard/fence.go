package shard

import (
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// createMargin is how much time a create at a cloud must have before the fence: a cloud takes seconds to accept one, and
// what it accepts after the fence is found by the next owner only by the machine's UID.
const createMargin = 3 * time.Second

// Fence knows what this session owns, and is asked before anything begins. It is safe for concurrent use. Make one with
// NewFence; the Replica keeps it current.
type Fence struct {
	replica, session string
	time             *Time
	metrics          *Metrics
	hold             *FaultPoint // nil without --debug-hooks

	until       atomic.Pointer[membership.Moment] // the session's fence
	leaderUntil atomic.Pointer[membership.Moment] // the leadership's; the session's holds for it too
	slots       []*holding
	leadership  *holding
	turnedAway  atomic.Bool // a key of a slot, at the fence, before the Replica knew that it had passed
}

// Time tells the time on both clocks of the machine: since the process started, and by the wall.
type Time struct {
	clock.WithTicker

	start time.Time
}

// NewTime starts to measure now.
func NewTime(c clock.WithTicker) *Time { return &Time{WithTicker: c, start: c.Now()} }

// Moment is now.
func (t *Time) Moment() membership.Moment {
	now := t.Now()
	return membership.Moment{Monotonic: now.Sub(t.start), Wall: now.Round(0)}
}

// action is something that is about to begin.
type action uint8

const (
	pass   action = iota // a key of a runner
	write                // a mutating request
	read                 // a call of a driver that changes nothing
	call                 // any other call of a driver
	create               // a call of a driver that makes something
)

// NewFence makes a Fence under which nothing is allowed yet. Hold may be nil.
func NewFence(replica, session string, slots int, t *Time, m *Metrics, hold *FaultPoint) *Fence {
	f := &Fence{replica: replica, session: session, time: t, metrics: m, hold: hold, leadership: &holding{}}
	f.until.Store(&membership.Moment{})
	f.leaderUntil.Store(&membership.Moment{})
	for range slots {
		f.slots = append(f.slots, &holding{})
	}
	return f
}

// holding returns what an ownership is about; nil for none, and for a slot that the fleet does not have.
func (f *Fence) holding(o Ownership) *holding {
	switch {
	case o.kind == ofLeader:
		return f.leadership
	case o.kind == ofSlot && o.slot >= 0 && o.slot < len(f.slots):
		return f.slots[o.slot]
	}
	return nil
}

// begin counts something in flight, if it may begin now. done has to be called when it has ended.
func (f *Fence) begin(o Ownership, a action) (done func(), why Refusal) {
	if o.kind == ofProtocol {
		return func() {}, f.mayAsk(o.need)
	}
	h := f.holding(o)
	if h == nil {
		return nil, Unowned
	}
	if f.passed(o.kind, a) {
		return nil, Fenced
	}
	return h.begin(o.epoch, a)
}

// passed says whether the fence of an ownership is behind us, or too near.
func (f *Fence) passed(k kind, a action) bool {
	now := f.time.Moment()
	if a == create {
		now = now.Add(createMargin)
	}
	return now.Reached(*f.until.Load()) || k == ofLeader && now.Reached(*f.leaderUntil.Load())
}

// mayAsk checks a request about Leases; "" means that it may be sent.
func (f *Fence) mayAsk(need membership.Need) Refusal {
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

// follow takes over what the machine says about the fence, and about the slots of which it may say something else. missed says that keys were turned away at a fence
// that was moved on then, so that nothing was suspended and nothing resumes: they have to be let in again.
func (f *Fence) follow(m *protocol.Session, slots []int) (missed bool) {
	until := membership.Moment{}
	if !m.Suspended() {
		until = m.Fence()
		f.leadership.resume()
	}
	f.until.Store(&until)
	for _, slot := range slots {
		f.slots[slot].set(m.Entitled(slot))
	}
	return !m.Suspended() && f.turnedAway.Swap(false)
}

// suspend stops everything.
func (f *Fence) suspend() {
	f.until.Store(&membership.Moment{})
	for _, h := range f.all() {
		h.stop()
		h.cancel(Fenced)
	}
}

// close ends all ownership, for good.
func (f *Fence) close() {
	f.suspend()
	for _, h := range f.all() {
		h.set(0, false)
	}
}

// onIdle calls idle once when nothing of a slot, or of everything, is in flight.
func (f *Fence) onIdle(slot int, idle func()) {
	if slot != protocol.Everything {
		f.slots[slot].onIdle(idle)
		return
	}
	all := f.all()
	left := atomic.Int64{}
	left.Store(int64(len(all)))
	for _, h := range all {
		h.onIdle(func() {
			if left.Add(-1) == 0 {
				idle()
			}
		})
	}
}

func (f *Fence) all() []*holding { return append(slices.Clone(f.slots), f.leadership) }

// Busy counts what is in flight.
func (f *Fence) Busy() int {
	busy := 0
	for _, h := range f.all() {
		busy += h.busy()
	}
	return busy
}

// Acts says that the session's fence has not passed: until then nobody else has what this session holds.
func (f *Fence) Acts() bool { return !f.passed(ofSlot, write) }

// Until is the session's fence; the zero Moment while it may start nothing.
func (f *Fence) Until() membership.Moment { return *f.until.Load() }
