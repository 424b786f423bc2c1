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

func (s *ownershipState) begin(epoch int64, a action) (done func(), why Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.held || s.epoch != epoch:
		return nil, Lost
	case s.stopping && a != write:
		return nil, Stopping
	}
	s.inFlight++
	return sync.OnceFunc(s.done), ""
}

// mayGoOn returns why a pass of that epoch has to end after its current step; "" if it may
// continue.
func (s *ownershipState) mayGoOn(epoch int64) Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.held || s.epoch != epoch:
		return Lost
	case s.stopping:
		return Stopping
	}
	return ""
}

func (s *ownershipState) done() {
	s.mu.Lock()
	s.inFlight--
	var waiting []func()
	if s.inFlight == 0 {
		waiting, s.whenIdle = s.whenIdle, nil
	}
	s.mu.Unlock()
	for _, idle := range waiting {
		idle()
	}
}

// arrived records the trace of the hand-over or take-over by which the slot has come under an
// epoch.
func (s *ownershipState) arrived(epoch int64, traceparent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrival, s.arrivedAt = traceparent, epoch
}

// arrivalOf returns the trace by which the slot has come under an epoch; "" when it is not known.
func (s *ownershipState) arrivalOf(epoch int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrivedAt != epoch {
		return ""
	}
	return s.arrival
}

// admit begins a pass, and returns its ownership with the epoch of the slot. cancel is called with
// the reason when the pass must not continue.
func (s *ownershipState) admit(o Ownership, cancel *context.CancelCauseFunc) (owned Ownership, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOpen() {
		return o, false
	}
	o.epoch = s.epoch
	s.inFlight++
	if s.passes == nil {
		s.passes = map[*context.CancelCauseFunc]Ownership{}
	}
	s.passes[cancel] = o
	return o, true
}

// end ends a pass.
func (s *ownershipState) end(cancel *context.CancelCauseFunc, now time.Time) {
	s.mu.Lock()
	delete(s.passes, cancel)
	if s.served.IsZero() {
		s.served = now
	}
	s.mu.Unlock()
	s.done()
}

// isKnown reports whether the objects are complete. The caller must hold h.mu.
func (s *ownershipState) isKnown() bool { return s.held && s.open && s.openAt == s.epoch }

// isOpen reports whether passes are admitted. The caller must hold h.mu.
func (s *ownershipState) isOpen() bool { return s.isKnown() && !s.stopping }

// set records whether the slot is held and under which epoch. Passes that were admitted before are
// cancelled. A slot that is not held for a moment and is then confirmed under the same epoch is as
// open as before; so is one that was acquired, and opened with setOpen, while the session was
// suspended.
func (s *ownershipState) set(epoch int64, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == held && s.epoch == epoch {
		return
	}
	s.cancelLocked(Lost)
	if s.held = held; held && s.epoch != epoch {
		s.epoch, s.stopping = epoch, false
	}
}

// setOpen admits passes as long as the slot is held under this epoch.
func (s *ownershipState) setOpen(epoch int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.openAt, s.opened, s.served = true, epoch, now, time.Time{}
}

// setClosed admits no pass until setOpen.
func (s *ownershipState) setClosed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.opened, s.served = false, time.Time{}, time.Time{}
}

// stop admits no more passes.
func (s *ownershipState) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
}

// onIdle calls idle once, as soon as nothing is in flight.
func (s *ownershipState) onIdle(idle func()) {
	s.mu.Lock()
	now := s.inFlight == 0
	if !now {
		s.whenIdle = append(s.whenIdle, idle)
	}
	s.mu.Unlock()
	if now {
		idle()
	}
}

// resume undoes stop.
func (s *ownershipState) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = false
}

// renew records the leadership as held and open under the next epoch.
func (s *ownershipState) renew(now time.Time) {
	s.mu.Lock()
	next := s.epoch + 1
	s.mu.Unlock()
	s.set(next, true)
	s.setOpen(next, now)
}

// cancel ends the contexts of all passes.
func (s *ownershipState) cancel(why Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelLocked(why)
}

func (s *ownershipState) cancelLocked(why Refusal) {
	for cancel, o := range s.passes {
		(*cancel)(&RefusedError{What: "the rest of a pass", Under: o.String(), Why: why})
	}
}

func (s *ownershipState) isHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *ownershipState) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}
