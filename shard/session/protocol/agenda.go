package protocol

import (
	"math"
	"math/bits"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// A fleet has up to 4096 slots, and the loop that decides them also renews the session. So a step
// decides only the slots for which something may have changed. An event, an answer or a deadline of
// one slot touches that slot. What concerns all slots touches all: the session may begin or stop to
// act, lead or leave; a session Lease has another holder; a clock was set. Deciding a slot that was
// not touched has no effect.

// agenda is which slots have to be decided, and when.
type agenda struct {
	// touched have to be decided in this step. blocked have to be decided when one more request may be
	// in flight.
	touched, blocked slotSet
	// dirty is true if what does not concern single slots has to be decided in this step; wake is when
	// it has to be without an event.
	dirty bool
	wake  member.Moment
	// dues are when slots have to be decided without an event, on the monotonic clock.
	dues []time.Duration
	// clocks is when the distance between the two clocks was last measured.
	clocks member.Moment
	// everything makes each step decide all slots, for tests that compare the results.
	everything bool
}

const (
	// never is the due time of a slot without a deadline.
	never = time.Duration(math.MaxInt64)
	// clockStep is the smallest change of the distance between the two clocks that counts as a clock
	// having been set.
	clockStep = time.Millisecond
)

func newAgenda(slots int) agenda {
	a := agenda{
		touched: newSlotSet(slots), blocked: newSlotSet(slots), dues: make([]time.Duration, slots), dirty: true,
	}
	for number := range a.dues {
		a.dues[number] = never
	}
	return a
}

// DecideAll makes each step decide all slots. The outputs are the same, except for Output.Slots:
// tests compare them.
func (a *agenda) DecideAll() { a.everything = true }

// touch makes this step decide a slot.
func (a *agenda) touch(s *slot) {
	a.touched.set(s.number, true)
	a.dirty = true
}

// touchAll makes this step decide all slots.
func (a *agenda) touchAll() {
	for number := range a.dues {
		a.touched.set(number, true)
	}
	a.dirty = true
}

// touchDue touches the slots that are due. If a clock was set, any deadline may have been reached.
func (a *agenda) touchDue(now member.Moment) {
	for number, due := range a.dues {
		if due <= now.Monotonic {
			a.touched.set(number, true)
			a.dirty = true
		}
	}
	if ran := now.Wall.Sub(a.clocks.Wall) - now.Since(a.clocks); ran.Abs() >= clockStep {
		a.clocks = now
		a.touchAll()
	}
	if a.everything {
		for number := range a.dues {
			a.touched.set(number, true)
		}
	}
}

// laterFor makes the session decide a slot at a moment on the monotonic clock.
func (a *agenda) laterFor(s *slot, at member.Moment) {
	a.dues[s.number] = min(a.dues[s.number], at.Monotonic)
}

// deadlineFor makes the session decide a slot when either clock has reached the deadline. As long
// as no clock is set, both advance alike.
func (a *agenda) deadlineFor(now member.Moment, s *slot, at member.Moment) {
	a.laterFor(s, at)
	a.laterFor(s, now.Add(at.Wall.Sub(now.Wall)))
}

// nextDue returns when the first slot is due; the zero Moment if none is.
func (a *agenda) nextDue(now member.Moment) member.Moment {
	first := never
	for _, due := range a.dues {
		first = min(first, due)
	}
	if first == never {
		return member.Moment{}
	}
	return now.Add(first - now.Monotonic)
}

// nextSlot returns the first slot, starting at a number, that has to be decided; less than 0 if
// there is none. room is true if more requests may be in flight.
func (a *agenda) nextSlot(from int, room bool) int {
	next := a.touched.next(from)
	if room {
		if blocked := a.blocked.next(from); next < 0 || blocked >= 0 && blocked < next {
			return blocked
		}
	}
	return next
}

// slotSet is a set of slots by their numbers.
type slotSet []uint64

func newSlotSet(slots int) slotSet { return make(slotSet, (slots+63)/64) }

func (s slotSet) set(number int, in bool) {
	if in {
		s[number/64] |= 1 << (number % 64)
	} else {
		s[number/64] &^= 1 << (number % 64)
	}
}

func (s slotSet) has(number int) bool { return s[number/64]&(1<<(number%64)) != 0 }

func (s slotSet) size() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// next returns the first number in the set that is not less than from; less than 0 if there is
// none.
func (s slotSet) next(from int) int {
	for word := from / 64; word < len(s); word++ {
		rest := s[word]
		if word == from/64 {
			rest &= ^uint64(0) << (from % 64)
		}
		if rest != 0 {
			return word*64 + bits.TrailingZeros64(rest)
		}
	}
	return -1
}

func (s slotSet) isEmpty() bool { return s.next(0) < 0 }

// later requests a step at a moment.
func (a *agenda) later(at member.Moment) { a.wake = member.Earliest(a.wake, at) }
