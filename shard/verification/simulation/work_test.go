package simulation

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// work is the work of a process for one slot.
type work struct {
	held, open, stopping bool
	acquired             int           // how often
	since                time.Duration // when it was last acquired
	calls                []*call
	whenIdle             []func()
}

// call is something in flight: a pass that sends one request after the other, or one long call.
type call struct {
	slot          int
	epoch         int64
	ignoresCancel bool // it continues when it is cancelled
	cancelled     bool
	over          bool
}

// startCalls begins calls, without end.
func (p *process) startCalls() {
	if slot := p.w.random.IntN(p.w.slots); p.work[slot].held && p.work[slot].open && !p.work[slot].stopping && p.owns(slot) {
		p.beginCall(slot)
	}
	if now := p.w.now; now-p.weighed > p.w.config.WeighEvery {
		p.weighed = now
		weights := map[int]int64{}
		for slot := range p.work {
			if p.work[slot].held {
				if weights[slot] = 1; p.w.lists == nil {
					weights[slot] = int64(slot + p.w.random.IntN(3))
				}
			}
		}
		p.post(protocol.Weighed{Weights: weights})
	}
	p.soon(p.w.between(200*time.Millisecond, 600*time.Millisecond), p.startCalls)
}

func (p *process) beginCall(slot int) {
	c := &call{slot: slot, epoch: p.epochs[slot]}
	w := &p.work[slot]
	w.calls = append(w.calls, c)
	duration := p.w.between(5*time.Millisecond, 2*time.Second)
	if p.w.faults.on && p.w.chance(p.w.faults.longCallOneIn) {
		duration, c.ignoresCancel = p.w.between(time.Second, 100*time.Second), p.w.chance(2)
	}
	p.send(c)
	p.soon(duration/2, func() {
		if !c.over && p.owns(slot) && p.epochs[slot] == c.epoch {
			p.send(c)
		}
	})
	p.soon(duration, func() { p.finish(c) })
}

// send starts a side effect that has just been checked, and completes it: at once, unless the
// process is stopped in between.
func (p *process) send(c *call) {
	p.w.checker.acts(p, c.slot)
	began := p.w.now
	if p.trap != 0 {
		p.stop()
		p.w.after(p.trap, p.resume)
		p.trap = 0
	}
	p.soon(p.w.between(0, time.Millisecond), func() { p.w.checker.lands(p, c.slot, began) })
}

func (p *process) finish(c *call) {
	if c.over {
		return
	}
	c.over = true
	w := &p.work[c.slot]
	for i, other := range w.calls {
		if other == c {
			w.calls = append(w.calls[:i], w.calls[i+1:]...)
			break
		}
	}
	p.reportIdle(c.slot)
}

// reportIdle calls the functions that wait until nothing is in flight, of the slot or at all.
func (p *process) reportIdle(slot int) {
	w := &p.work[slot]
	if len(w.calls) > 0 {
		return
	}
	waiting := w.whenIdle
	w.whenIdle = nil
	for _, idle := range waiting {
		idle()
	}
}

// onIdle calls idle once nothing is in flight.
func (p *process) onIdle(slot int, idle func()) {
	if p.w.broken.idleAtOnce {
		idle()
		return
	}
	if slot == protocol.Everything {
		left := len(p.work)
		for slot := range p.work {
			p.onIdle(slot, func() {
				if left--; left == 0 {
					idle()
				}
			})
		}
		return
	}
	p.work[slot].whenIdle = append(p.work[slot].whenIdle, idle)
	p.reportIdle(slot)
}

// end applies the part of a change that stops something.
func (p *process) end(change protocol.Change) {
	each := func(do func(*work)) {
		for slot := range p.work {
			if change.Slot == slot || change.Slot == protocol.Everything {
				do(&p.work[slot])
			}
		}
	}
	switch change.Kind {
	case protocol.Stopped:
		each(func(w *work) { w.stopping = true })
	case protocol.Cancelled, protocol.Suspended:
		each(func(w *work) { w.stopping = true; p.cancel(w) })
	case protocol.Lost:
		each(func(w *work) { w.held, w.open = false, false; p.cancel(w) })
	case protocol.Acquired, protocol.Resumed:
	}
}

func (p *process) cancel(w *work) {
	for _, c := range w.calls {
		if !c.cancelled && !c.ignoresCancel {
			c.cancelled = true
			p.soon(p.w.between(0, 50*time.Millisecond), func() { p.finish(c) })
		}
	}
}

// begin applies the part of a change that admits keys.
func (p *process) begin(change protocol.Change) {
	switch change.Kind {
	case protocol.Acquired:
		w := &p.work[change.Slot]
		w.held, w.open, w.stopping = true, false, false
		w.acquired++
		w.since = p.w.now
		life := w.acquired
		var open func()
		open = func() {
			switch {
			case w.acquired != life || !w.held:
			case p.w.now < p.w.faults.shut[p]:
				p.soon(time.Second, open)
			default:
				w.open = true
				p.post(protocol.Opened{Slot: change.Slot, Epoch: change.Epoch})
			}
		}
		if p.w.lists != nil {
			p.w.lists.open(p, change.Slot, open)
			return
		}
		p.soon(p.w.between(20*time.Millisecond, 2*time.Second), open) // a consistent first list
	case protocol.Resumed:
		for slot := range p.work {
			if change.Slot == slot || change.Slot == protocol.Everything {
				p.work[slot].stopping = false
			}
		}
	case protocol.Stopped, protocol.Cancelled, protocol.Suspended, protocol.Lost:
	}
}
