package protocol

import (
	"math"
	"math/bits"
	"time"

	"k8s.io/apimachinery/pkg/types"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// A fleet has up to 4096 slots, and the loop that decides them also renews the session. So a step decides only the slots for
// which something may have changed. An event, an answer or a deadline of one slot touches that slot. What concerns all slots
// touches all: the session may begin or stop to act, lead or leave; a session Lease has another holder; a clock was set. Deciding
// a slot that was not touched has no effect.

// agenda is which slots have to be decided, and when.
type agenda struct {
	// touched have to be decided in this step. blocked have to be decided when one more request may be in flight.
	touched, blocked slotSet
	// engaged are the slots that prevent a leaving session from emptying its Lease. making are those whose Lease the leader has
	// to create, open those for which it has to list the sessions.
	engaged, making, open slotSet
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
	// clockStep is the smallest change of the distance between the two clocks that counts as a clock having been set.
	clockStep = time.Millisecond
)

func newAgenda(slots int) agenda {
	a := agenda{
		touched: newSlotSet(slots), blocked: newSlotSet(slots), engaged: newSlotSet(slots), making: newSlotSet(slots), open: newSlotSet(slots),
		dues: make([]time.Duration, slots),
	}
	for number := range a.dues {
		a.dues[number] = never
	}
	return a
}

// DecideAll makes each step decide all slots. The outputs are the same, except for Output.Slots: tests compare them.
func (r *Session) DecideAll() { r.everything = true }

// touch makes this step decide a slot.
func (r *Session) touch(s *slot) {
	r.touched.set(s.number, true)
	r.dirty = true
}

// touchAll makes this step decide all slots.
func (r *Session) touchAll() {
	for _, s := range r.slots {
		r.touch(s)
	}
}

// touchDue touches the slots that are due. If a clock was set, any deadline may have been reached.
func (r *Session) touchDue(now member.Moment) {
	for number, due := range r.dues {
		if due <= now.Monotonic {
			r.touch(r.slots[number])
		}
	}
	if ran := now.Wall.Sub(r.clocks.Wall) - now.Since(r.clocks); ran.Abs() >= clockStep {
		r.clocks = now
		r.touchAll()
	}
	if r.everything {
		for number := range r.slots {
			r.touched.set(number, true)
		}
	}
}

// laterFor makes the session decide a slot at a moment on the monotonic clock.
func (r *Session) laterFor(s *slot, at member.Moment) {
	r.dues[s.number] = min(r.dues[s.number], at.Monotonic)
}

// deadlineFor makes the session decide a slot when either clock has reached the deadline. As long as no clock is set, both
// advance alike.
func (r *Session) deadlineFor(now member.Moment, s *slot, at member.Moment) {
	r.laterFor(s, at)
	r.laterFor(s, now.Add(at.Wall.Sub(now.Wall)))
}

// nextDue returns when the first slot is due; the zero Moment if none is.
func (r *Session) nextDue(now member.Moment) member.Moment {
	first := never
	for _, due := range r.dues {
		first = min(first, due)
	}
	if first == never {
		return member.Moment{}
	}
	return now.Add(first - now.Monotonic)
}

// decideSlots decides the slots that were touched, and those that were blocked as long as more requests may be in flight.
func (r *Session) decideSlots(now member.Moment) {
	for number := r.nextSlot(0); number >= 0; number = r.nextSlot(number + 1) {
		s := r.slots[number]
		r.touched.set(number, false)
		r.blocked.set(number, false)
		r.dues[number] = never
		r.out.Slots = append(r.out.Slots, number)
		r.decideSlot(now, s)
		r.engaged.set(number, s.phase != free || s.busy || s.pending || s.mustRead || len(s.attempts) > 0)
	}
}

// nextSlot returns the first slot, starting at a number, that has to be decided; less than 0 if there is none.
func (r *Session) nextSlot(from int) int {
	next := r.touched.next(from)
	if r.inUse < mostRequests {
		if blocked := r.blocked.next(from); next < 0 || blocked >= 0 && blocked < next {
			return blocked
		}
	}
	return next
}

// words is the content of a session Lease, parsed once for each of its versions.
type words struct {
	session, confirmed, weights, reported string
	// accounts is what was reported of accounts at clouds. uids are the slot Leases that the session has confirmed, weightOf the weights
	// of slots that the replica reports.
	accounts member.Accounts
	uids     map[types.UID]struct{}
	weightOf map[int]int64
}

// applyNews applies what has changed on session Leases.
func (r *Session) applyNews() {
	replicas, lives := r.others.News()
	if lives {
		r.touchAll()
	}
	for _, replica := range replicas {
		peer := r.others.Peer(replica)
		w := r.words[replica]
		if w == nil {
			w = &words{}
			r.words[replica] = w
		}
		if w.weights != peer.Weights {
			w.weights, w.weightOf = peer.Weights, readWeights(peer.Weights)
		}
		if w.reported != peer.Accounts {
			w.reported = peer.Accounts
			w.accounts, _ = member.ParseAccounts(peer.Accounts) // an invalid report reports nothing
		}
		if w.session != peer.Session || w.confirmed != peer.Confirmed {
			delete(r.confirmations, w.session)
			before := w.uids
			w.session, w.confirmed, w.uids = peer.Session, peer.Confirmed, readConfirmed(peer.Confirmed)
			r.confirmations[w.session] = w.uids
			r.touchConfirmed(before, w.uids)
		}
	}
}

// touchConfirmed touches the slots in quarantine that a session has confirmed either before or after, but not both.
func (r *Session) touchConfirmed(before, after map[types.UID]struct{}) {
	for _, s := range r.slots {
		if len(s.quarantine) == 0 {
			continue
		}
		_, was := before[s.lease.UID]
		if _, is := after[s.lease.UID]; is != was {
			r.touch(s)
		}
	}
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

// next returns the first number in the set that is not less than from; less than 0 if there is none.
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
