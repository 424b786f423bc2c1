package model

// The steps of a session.

// successors collects the successors of a world.
type successors struct {
	fleet
	from  world
	steps []step[world]
}

// next appends all possible steps of a world.
func (f fleet) next(w world, steps []step[world]) []step[world] {
	first := len(steps)
	n := &successors{fleet: f, from: w, steps: steps}
	n.network()
	for i := range f.sessions() {
		n.life(uint8(i + 1))
	}
	n.byHand()
	if !f.prompt || w.away || faultlessKind(n.steps[first:]) == passing {
		n.time()
	}
	for i := range n.steps[first:] {
		n.recycle(&n.steps[first+i].to)
	}
	return n.steps
}

// add appends a step: do changes the world. The names of sessions are inserted into the label.
func (n *successors) add(k kind, text string, who uint8, do func(w *world)) *label {
	w := n.from
	do(&w)
	n.steps = append(n.steps, step[world]{kind: k, name: label{format: text, first: n.called(who)}, to: w})
	return &n.steps[len(n.steps)-1].name
}

// reaches reports whether a session's requests and watches get through.
func (n *successors) reaches(who uint8) bool { return !n.from.away && !has(n.from.cut, n.replica(who)) }

// life performs the steps of a session in its phase.
func (n *successors) life(who uint8) {
	s := n.from.session(who)
	switch s.phase {
	case notStarted:
		n.startProcess(who)
		return
	case gone:
		return // until nothing names it
	case starting, living:
	}
	if !n.isSteady(who) {
		n.processFaults(who)
	}
	if s.asleep || !n.reaches(who) {
		return
	}
	n.watch(who)
	if s.phase == starting {
		n.begin(who)
		return
	}
	if !n.isSteady(who) {
		n.renew(who)
	}
	if s.fence > 0 {
		n.declareDead(who)
		n.lead(who)
	}
	n.hold(who)
}

// recycle lets sessions that are gone, and that nothing names, be reused under the same number, as
// other sessions.
func (f fleet) recycle(w *world) {
	for i := range f.sessions() {
		who := uint8(i + 1)
		if f.once || w.session(who).phase != gone || w.referenced(who) {
			continue
		}
		for j := range w.sessions {
			w.sessions[j].dead &^= 1 << who
			w.sessions[j].confirmed &^= 1 << who
		}
		*w.session(who) = session{}
	}
}

// startProcess starts a process. Two processes of one replica at a time are a fault.
func (n *successors) startProcess(who uint8) {
	k := due
	for i := range n.sessions() {
		s := n.from.sessions[i]
		if n.replicas[i] != n.replica(who) {
			continue
		}
		if s.phase == notStarted && uint8(i+1) < who {
			return // they are all alike
		}
		if s.phase == starting || s.phase == living {
			k = fault
		}
	}
	if k == fault && n.from.remaining.twins == 0 {
		return
	}
	n.add(k, "%s starts", who, func(w *world) {
		if k == fault {
			w.remaining.twins--
		}
		w.session(who).phase = starting
	})
}

// processFaults adds the faults of a process.
func (n *successors) processFaults(who uint8) {
	s := n.from.session(who)
	if n.from.remaining.crashes > 0 {
		n.add(fault, "%s is killed", who, func(w *world) {
			w.remaining.crashes--
			w.end(who)
		})
	}
	if s.asleep {
		n.add(due, "%s wakes up", who, func(w *world) { w.session(who).asleep = false })
	} else if n.from.remaining.sleeps > 0 && s.phase == living {
		n.add(fault, "%s is suspended", who, func(w *world) {
			w.remaining.sleeps--
			w.session(who).asleep = true
		})
	}
}

// watch updates views: by an event, or a live read. What lies between two versions is skipped; a
// view that stays at one of them was updated immediately before.
func (n *successors) watch(who uint8) {
	s := n.from.session(who)
	if (!s.slot.fresh || s.doubts) && (!has(n.passive, who) || s.slot.holder == who) {
		n.add(due, "%s sees the slot Lease", who, func(w *world) { n.seeSlot(w, who) })
	}
	for r := range uint8(maxReplicas) {
		if n.watches(&n.from, who, r) && !s.peers[r].fresh {
			n.add(due, "%s sees the session Lease of %s", who, func(w *world) { n.seePeer(w, who, r) }).second = replicaName(r)
		}
	}
}

func (n *successors) seeSlot(w *world, who uint8) {
	s := w.session(who)
	if s.slot.holder != w.slot.holder || s.slot.known != w.slot.exists {
		s.dead = 0 // a proof begins after the holder was observed
		for r := range s.peers {
			s.peers[r].absent = 0
		}
	}
	if !s.slot.fresh {
		s.released = false
	}
	if w.slot.quarantine && s.slot.seen == 0 && (w.slot.listed || n.mutation == quarantineTimedFromLease) {
		s.slot.seen = 1
	}
	s.slot = slotView{
		exists: w.slot.exists, holder: w.slot.holder, assigned: w.slot.assigned, fresh: true, known: w.slot.exists, seen: s.slot.seen,
	}
	s.doubts = false
}

func (n *successors) seePeer(w *world, who, r uint8) {
	view, lease := &w.session(who).peers[r], w.leases[r]
	changed := !view.fresh && (view.exists || lease.exists) // an absence may be interrupted without being seen
	if changed || n.mutation == readRestartsTimer {
		view.quiet = 0
	}
	view.exists, view.holder, view.fresh = lease.exists, lease.holder, true
	if lease.created && view.known == 0 {
		view.known = 1
	}
	if s := w.session(who); s.phase == starting && r == n.replica(who) {
		n.settle(w, who)
	}
}

// settle: a starting session learns who holds its session Lease.
func (n *successors) settle(w *world, who uint8) {
	s, r := w.session(who), n.replica(who)
	if lease := w.leases[r]; lease.holder == who {
		s.phase, s.fresh, s.fence = living, true, fence-lease.age
		s.peers[r] = peerView{known: s.peers[r].known}
		s.doubts = s.fence == 0
	}
}

// begin: a starting session creates its session Lease, or acquires it when it is empty or has not
// changed for a long time.
func (n *successors) begin(who uint8) {
	s, r := n.from.session(who), n.replica(who)
	view := s.peers[r]
	switch {
	case !view.fresh || n.from.onWire(create, who, r)+n.from.onWire(acquireSession, who, r) > 0:
	case !view.exists:
		n.request(create, "%s sends: create its session Lease", who, r, func(*session) {})
	case view.holder == 0 || view.quiet >= takeOver:
		n.request(acquireSession, "%s sends: acquire its session Lease", who, r, func(*session) {})
	}
}

// request adds the sending of an update.
func (n *successors) request(v verb, text string, who, on uint8, note func(s *session)) {
	w := n.from
	if !w.send(message{verb: v, from: who, on: on}) {
		return
	}
	note(w.session(who))
	n.steps = append(n.steps, step[world]{kind: due, name: label{format: text, first: n.called(who), second: replicaName(on)}, to: w})
}

// renew: a living session keeps its Lease, and computes its fence from answers and reads.
func (n *successors) renew(who uint8) {
	s, r := n.from.session(who), n.replica(who)
	if s.answer > 0 {
		n.add(due, "%s receives the answer to its renewal", who, func(w *world) { n.answered(w, who) })
		if n.from.remaining.lostAnswers > 0 {
			n.add(fault, "the answer to %s's renewal is lost", who, func(w *world) {
				w.remaining.lostAnswers--
				w.session(who).answer, w.session(who).answerFresh = 0, false
			})
		}
	}
	if !s.fresh {
		n.add(due, "%s reads its session Lease", who, func(w *world) {
			s := w.session(who)
			if lease := w.leases[r]; lease.holder != who || s.deleted {
				w.end(who)
			} else {
				s.fresh, s.fence, s.echo = true, max(s.fence, fence-lease.age), n.cameBack(lease.age)
			}
		})
	} else if !s.sent && n.from.onWire(renew, who, r) < max(n.attempts, 1) {
		w := n.from
		confirm := w.slot.quarantine && s.slot.known && !s.busy
		if w.send(message{verb: renew, from: who, on: r, confirm: confirm}) {
			w.session(who).sent = true
			n.steps = append(n.steps, step[world]{kind: due, name: label{format: "%s sends a renewal", first: n.called(who)}, to: w})
		}
	}
	if n.from.remaining.leaves > 0 && !s.busy && s.fresh {
		w := n.from
		if w.send(message{verb: empty, from: who, on: r, age: fence}) {
			w.remaining.leaves--
			w.end(who)
			n.steps = append(n.steps, step[world]{kind: fault, name: label{format: "%s sends: it leaves", first: n.called(who)}, to: w})
		}
	}
}

// answered applies the answer to a renewal: the fence is counted from the send of the renewal.
func (n *successors) answered(w *world, who uint8) {
	s := w.session(who)
	age := s.answer - 1
	s.fence = max(s.fence, fence-age)
	if n.mutation == fenceFromAnswer {
		s.fence = fence
	}
	s.fresh, s.answer, s.answerFresh = s.answerFresh, 0, false
}
