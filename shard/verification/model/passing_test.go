package model

// The network, interventions of users, and time.

// network delivers, drops and repeats what is on the wire.
func (n *successors) network() {
	for i, m := range n.from.wire {
		if m.verb == nothing || i > 0 && m == n.from.wire[i-1] {
			continue
		}
		if s := n.from.session(m.from); n.from.away || s.phase == living && !n.reaches(m.from) {
			continue
		}
		apply := func(w *world) {
			w.wire[i] = message{}
			w.sortWire()
		}
		n.add(due, m.text(), m.from, func(w *world) {
			apply(w)
			n.deliver(w, m)
		})
		if n.from.remaining.drops > 0 {
			n.add(fault, "a request of %s is lost", m.from, func(w *world) {
				w.remaining.drops--
				apply(w)
			})
		}
		if n.from.remaining.repetitions > 0 && m.verb == create {
			n.add(fault, "a request of %s arrives, and will arrive once more", m.from, func(w *world) {
				w.remaining.repetitions--
				n.deliver(w, m)
			})
		}
	}
}

func (m message) text() string {
	switch m.verb {
	case create:
		return "the session Lease of %s is created"
	case acquireSession:
		return "the session Lease is acquired by %s"
	case renew:
		return "a renewal of %s arrives"
	case empty:
		return "a session Lease is emptied by %s"
	case acquire:
		return "the slot is acquired by %s"
	case release:
		return "the slot is released by %s"
	case nothing:
	}
	return "nothing of %s arrives"
}

// byHand deletes Leases as a user does, and makes the API server unavailable.
func (n *successors) byHand() {
	if n.from.remaining.slotDeletions > 0 && n.from.slot.exists {
		n.add(fault, "the slot Lease is deleted by hand", 0, func(w *world) {
			w.remaining.slotDeletions--
			n.deleteSlot(w)
		})
	}
	for r := range uint8(maxReplicas) {
		if n.from.remaining.leaseDeletions > 0 && n.from.leases[r].exists {
			n.add(fault, "the session Lease of %s is deleted by hand", 0, func(w *world) {
				w.remaining.leaseDeletions--
				n.deleteSession(w, r)
			}).first = replicaName(r)
		}
	}
	if !n.from.away && n.from.remaining.outages > 0 {
		n.add(fault, "the API server becomes unavailable", 0, func(w *world) {
			w.remaining.outages--
			w.away = true
		})
	}
	if n.from.away {
		n.add(due, "the API server is available again", 0, func(w *world) { w.away = false })
		for r := range uint8(maxReplicas) {
			n.add(fault, "the API server is available again, and for %s a little later", 0, func(w *world) {
				w.away, w.cut = false, 1<<r
			}).first = replicaName(r)
		}
	}
}

// time lets a tick pass: on all clocks alike, or with one that is slow or fast.
func (n *successors) time() {
	n.add(passing, "time passes", 0, func(w *world) { n.tick(w, 0, 0) })
	if n.from.away {
		n.steps[len(n.steps)-1].kind = fault // an outage may last for any time
	}
	if n.from.remaining.drifts == 0 {
		return
	}
	for i := range n.sessions() {
		who := uint8(i + 1)
		if s := n.from.session(who); s.phase != living || s.asleep {
			continue
		}
		if n.from.session(who).fence != 0 && !n.isSteady(who) {
			n.add(fault, "time passes, but not for %s", who, func(w *world) {
				w.remaining.drifts--
				n.tick(w, who, 0)
			})
		}
		n.add(fault, "time passes, twice as fast for %s", who, func(w *world) {
			w.remaining.drifts--
			n.tick(w, 0, who)
		})
	}
}

// tick ages everything.
func (n *successors) tick(w *world, slow, fast uint8) {
	for r := range w.leases {
		w.leases[r].age = min(w.leases[r].age+1, fence)
	}
	for i := range w.wire {
		if m := &w.wire[i]; m.verb != nothing {
			m.age = min(m.age+1, fence)
		}
	}
	w.sortWire()
	for i := range n.sessions() {
		n.age(w, uint8(i+1), slow, fast)
	}
	w.cut = 0
}

// age ages a session.
func (n *successors) age(w *world, who, slow, fast uint8) {
	s := w.session(who)
	if s.phase != starting && s.phase != living {
		return
	}
	s.sent = false
	if s.answer > 0 {
		s.answer = min(s.answer+1, 1+fence)
	}
	if !n.isSteady(who) && who != slow && (!s.asleep || n.mutation != fenceOnMonotonicClock) && s.fence > 0 {
		s.fence--
		s.doubts = s.doubts || s.fence == 0
	}
	if !s.asleep {
		n.timers(w, who)
		if who == fast {
			n.timers(w, who)
		}
	}
}

// cameBack returns the age of the newest renewal that was observed, where it matters.
func (n *successors) cameBack(age uint8) uint8 {
	if n.faults.outages == 0 {
		return 0
	}
	return age
}

// failed reports whether what a session sent in this tick has failed: its renewal, or the read of
// one that starts.
func (n *successors) failed(w *world, who uint8) bool {
	if n.mutation == noComeBack || n.mutation == failureIsNoGap && w.session(who).phase == living {
		return false
	}
	return w.away || !n.reaches(who)
}

// timers advances a session's own timers. Those of others' session Leases restart when its own
// renewals are not observed: then it would not observe others' either.
func (n *successors) timers(w *world, who uint8) {
	s := w.session(who)
	if s.slot.seen > 0 {
		s.slot.seen = min(s.slot.seen+1, takeOver+1)
	}
	if n.faults.outages > 0 && s.phase == living {
		s.echo = min(s.echo+1, echoGap+1)
	}
	gap := n.mutation != noComeBack && s.echo > echoGap || n.failed(w, who)
	for r := range uint8(maxReplicas) {
		view := &s.peers[r]
		if view.known > 0 {
			view.known = min(view.known+1, takeOver+1)
		}
		if view.absent > 0 {
			view.absent = min(view.absent+1, takeOver+1)
		}
		switch {
		case !n.watches(w, who, r):
		case gap, view.exists && view.holder == 0, s.phase == starting && r != n.replica(who) && n.mutation != noComeBack,
			(!view.exists || !view.fresh) && n.mutation != takeOverWithoutCompare && n.mutation != absenceTimedByWatch:
			view.quiet = 0
		default:
			view.quiet = min(view.quiet+1, takeOver)
		}
	}
}
