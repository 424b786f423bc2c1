package fence

import (
	"context"
	"sync"
	"time"
)

// ownershipState is the state of a slot, or of the leadership, in this session.
type ownershipState struct {
	mu       sync.Mutex
	epoch    int64
	held     bool // the protocol entitles the session to it
	open     bool // its objects are complete, for the epoch openAt
	openAt   int64
	stopping bool // no pass and no call of a driver may begin

	arrival   string // the W3C traceparent of the hand-over or take-over by which it has come, for the epoch arrivedAt
	arrivedAt int64

	// For debugging and measurements: when it was last opened, and when the first pass after that had
	// ended.
	opened, served time.Time

	inFlight int
	whenIdle []func() // called once when nothing is in flight
	passes   map[*context.CancelCauseFunc]Ownership
}

func (h *ownershipState) begin(epoch int64, a action) (done func(), why Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.held || h.epoch != epoch:
		return nil, Lost
	case h.stopping && a != write:
		return nil, Stopping
	}
	h.inFlight++
	return sync.OnceFunc(h.done), ""
}

// mayGoOn returns why a pass of that epoch has to end after its current step; "" if it may
// continue.
func (h *ownershipState) mayGoOn(epoch int64) Refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.held || h.epoch != epoch:
		return Lost
	case h.stopping:
		return Stopping
	}
	return ""
}

func (h *ownershipState) done() {
	h.mu.Lock()
	h.inFlight--
	var waiting []func()
	if h.inFlight == 0 {
		waiting, h.whenIdle = h.whenIdle, nil
	}
	h.mu.Unlock()
	for _, idle := range waiting {
		idle()
	}
}

// arrived records the trace of the hand-over or take-over by which the slot has come under an
// epoch.
func (h *ownershipState) arrived(epoch int64, traceparent string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arrival, h.arrivedAt = traceparent, epoch
}

// arrivalOf returns the trace by which the slot has come under an epoch; "" when it is not known.
func (h *ownershipState) arrivalOf(epoch int64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.arrivedAt != epoch {
		return ""
	}
	return h.arrival
}

// admit begins a pass, and returns its ownership with the epoch of the slot. cancel is called with
// the reason when the pass must not continue.
func (h *ownershipState) admit(o Ownership, cancel *context.CancelCauseFunc) (owned Ownership, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isOpen() {
		return o, false
	}
	o.epoch = h.epoch
	h.inFlight++
	if h.passes == nil {
		h.passes = map[*context.CancelCauseFunc]Ownership{}
	}
	h.passes[cancel] = o
	return o, true
}

// end ends a pass.
func (h *ownershipState) end(cancel *context.CancelCauseFunc, now time.Time) {
	h.mu.Lock()
	delete(h.passes, cancel)
	if h.served.IsZero() {
		h.served = now
	}
	h.mu.Unlock()
	h.done()
}

// isKnown reports whether the objects are complete. The caller must hold h.mu.
func (h *ownershipState) isKnown() bool { return h.held && h.open && h.openAt == h.epoch }

// isOpen reports whether passes are admitted. The caller must hold h.mu.
func (h *ownershipState) isOpen() bool { return h.isKnown() && !h.stopping }

// set records whether the slot is held and under which epoch. Passes that were admitted before are
// cancelled. A slot that is not held for a moment and is then confirmed under the same epoch is as
// open as before; so is one that was acquired, and opened with setOpen, while the session was
// suspended.
func (h *ownershipState) set(epoch int64, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == held && h.epoch == epoch {
		return
	}
	h.cancelLocked(Lost)
	if h.held = held; held && h.epoch != epoch {
		h.epoch, h.stopping = epoch, false
	}
}

// setOpen admits passes as long as the slot is held under this epoch.
func (h *ownershipState) setOpen(epoch int64, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.openAt, h.opened, h.served = true, epoch, now, time.Time{}
}

// setClosed admits no pass until setOpen.
func (h *ownershipState) setClosed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.opened, h.served = false, time.Time{}, time.Time{}
}

// stop admits no more passes.
func (h *ownershipState) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// onIdle calls idle once, as soon as nothing is in flight.
func (h *ownershipState) onIdle(idle func()) {
	h.mu.Lock()
	now := h.inFlight == 0
	if !now {
		h.whenIdle = append(h.whenIdle, idle)
	}
	h.mu.Unlock()
	if now {
		idle()
	}
}

// resume undoes stop.
func (h *ownershipState) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = false
}

// renew records the leadership as held and open under the next epoch.
func (h *ownershipState) renew(now time.Time) {
	h.mu.Lock()
	next := h.epoch + 1
	h.mu.Unlock()
	h.set(next, true)
	h.setOpen(next, now)
}

// cancel ends the contexts of all passes.
func (h *ownershipState) cancel(why Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancelLocked(why)
}

func (h *ownershipState) cancelLocked(why Refusal) {
	for cancel, o := range h.passes {
		(*cancel)(&RefusedError{What: "the rest of a pass", Under: o.String(), Why: why})
	}
}

func (h *ownershipState) isHeld() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

func (h *ownershipState) busy() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inFlight
}
