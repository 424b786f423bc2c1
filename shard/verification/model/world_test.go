package model

import "slices"

// Durations in ticks; doc.go explains why these stand for the real ones.
const (
	fence    = 3 // after the send of the last acknowledged renewal
	takeOver = 6 // without a change of a session Lease
	echoGap  = 2 // the largest age of the newest renewal that was observed through the watch
)

// Sizes of a world. Sessions have numbers from 1; 0 is none.
const (
	maxReplicas = 3
	maxSessions = 4
	maxWire     = 4
)

// world is a state of the fleet: the API server, the network, and what each session knows. Versions
// and UIDs are not numbers here. They are only ever compared with the current ones, and what is no
// longer current never is again; so every mention of one is a bit, which is cleared when the Lease
// changes.
type world struct {
	leases    [maxReplicas]sessionLease
	slot      slotLease
	sessions  [maxSessions]session
	wire      [maxWire]message // sorted, so that equal worlds look equal
	remaining faults           // what may still go wrong
	away      bool             // the API server is unavailable
	cut       uint8            // replicas for which it is still unavailable, after an outage
	killed    bool             // a session that lived was declared dead
}

// sessionLease is the session Lease of one replica at the API server.
type sessionLease struct {
	exists    bool
	created   bool  // created, not updated, by its first holder
	confirmed bool  // its holder does not hold the present slot Lease, and has nothing of it in flight
	holder    uint8 // a session
	age       uint8 // ticks since the send of its last update; up to fence
}

// slotLease is the Lease of the one slot.
type slotLease struct {
	exists     bool
	quarantine bool
	listed     bool  // the session Leases were listed after it was created again
	list       uint8 // a set of sessions
	holder     uint8
	assigned   uint8 // 1 + a replica; 0 is any
}

type phase uint8

const (
	notStarted phase = iota
	starting         // does not hold its session Lease yet, as far as it knows
	living
	gone
)

// session is one process, and what it knows.
type session struct {
	phase       phase
	asleep      bool // stopped or suspended
	sent        bool // a renewal in this tick
	fresh       bool // knows the current version of its session Lease
	deleted     bool // the session Lease that it held was deleted
	answerFresh bool // the answer in flight names the current version
	answer      uint8
	fence       uint8 // ticks left
	echo        uint8 // ticks since the send of its newest renewal that was observed
	slot        slotView
	released    bool // sent a release, and has seen no newer version that names it
	busy        bool // something of the slot is in flight
	doubts      bool // was suspended, and has not read the slot Lease since
	peers       [maxReplicas]peerView
	dead        uint8 // sessions proven dead since the slot Lease was seen to name them
	confirmed   uint8 // sessions seen to have confirmed
}

// slotView is the slot Lease as a session last observed it.
type slotView struct {
	exists   bool
	holder   uint8
	assigned uint8
	fresh    bool  // it is still this version
	known    bool  // it is still the same Lease, by UID
	seen     uint8 // ticks since this session first observed the list of a quarantine; 0 is never
}

// peerView is a session Lease as another session last observed it.
type peerView struct {
	exists bool
	holder uint8
	fresh  bool
	quiet  uint8 // ticks since it last changed
	known  uint8 // ticks since a created Lease was first observed; 0 is never
	absent uint8 // ticks since a live read found none, for a holder observed before; 0 is never
}

type verb uint8

const (
	nothing verb = iota
	create       // the sender's session Lease
	acquireSession
	renew
	empty // a session Lease: that of a dead session, or the sender's own
	acquire
	release
)

// message is a request in flight, for any time. An update names the version that it is based on, so
// one that names an old version can be removed.
type message struct {
	verb    verb
	from    uint8
	on      uint8 // the replica whose session Lease it is about
	age     uint8 // ticks since it was sent, up to fence
	confirm bool
	stale   bool // names an old version, but a mutation makes it matter
}

// faults are budgets.
type faults struct {
	crashes, sleeps, drifts, leaves, twins     uint8
	leaseDeletions, slotDeletions, repetitions uint8
	drops, flips, outages, lostAnswers         uint8
}

func (m message) order() int {
	order := int(m.verb)<<24 | int(m.from)<<16 | int(m.on)<<12 | int(m.age)<<4
	if m.confirm {
		order |= 2
	}
	if m.stale {
		order |= 1
	}
	return order
}

// send puts a message on the wire, and reports whether there was room.
func (w *world) send(m message) bool {
	for i := range w.wire {
		if w.wire[i].verb == nothing {
			w.wire[i] = m
			w.sortWire()
			return true
		}
	}
	return false
}

func (w *world) sortWire() {
	slices.SortFunc(w.wire[:], func(a, b message) int { return b.order() - a.order() })
}

// onWire counts a session's messages of a kind.
func (w *world) onWire(v verb, from, on uint8) (n int) {
	for _, m := range w.wire {
		if m.verb == v && m.from == from && m.on == on {
			n++
		}
	}
	return n
}

func (w *world) session(who uint8) *session { return &w.sessions[who-1] }

func has(set, who uint8) bool { return set&(1<<who) != 0 }

// entitled reports whether a session may start something for the slot, as far as it knows.
func (w *world) entitled(who uint8) bool {
	s := w.session(who)
	return s.phase == living && !s.asleep && s.fence > 0 && s.slot.exists && s.slot.holder == who && !s.released && !s.doubts
}

// end ends a session, by exit or death.
func (w *world) end(who uint8) { *w.session(who) = session{phase: gone} }

// referenced reports whether anything names a session. The number of one that nothing names can be
// reused.
func (w *world) referenced(who uint8) bool {
	if w.slot.holder == who || has(w.slot.list, who) {
		return true
	}
	for _, l := range w.leases {
		if l.holder == who {
			return true
		}
	}
	for _, m := range w.wire {
		if m.verb != nothing && m.from == who {
			return true
		}
	}
	for i := range w.sessions {
		s := &w.sessions[i]
		if s.slot.holder == who || slices.ContainsFunc(s.peers[:], func(p peerView) bool { return p.holder == who }) {
			return true
		}
	}
	return false
}
