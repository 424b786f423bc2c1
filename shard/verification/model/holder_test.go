package model

// Declaring sessions dead, holding the slot, and leading.

// silence returns for how long a session Lease must not have changed.
func (n *successors) silence() uint8 {
	if n.mutation == takeOverEarly {
		return takeOver - 2
	}
	return takeOver
}

// declareDead empties the session Leases that have not changed for a long time. Any session may.
func (n *successors) declareDead(who uint8) {
	for r := range uint8(maxReplicas) {
		view := n.from.session(who).peers[r]
		if n.watches(&n.from, who, r) && view.exists && view.holder != 0 && view.quiet >= n.silence() &&
			(view.fresh || n.mutation == takeOverWithoutCompare) && n.from.onWire(empty, who, r) == 0 {
			w := n.from
			if w.send(message{verb: empty, from: who, on: r, age: fence}) {
				n.steps = append(n.steps, step[world]{kind: due, name: label{
					format: "%s sends: the session of %s is dead", first: n.called(who), second: replicaName(r),
				}, to: w})
			}
		}
	}
}

// hold adds what a session does about the slot.
func (n *successors) hold(who uint8) {
	s := n.from.session(who)
	desired := s.slot.assigned == 0 || s.slot.assigned == 1+n.replica(who)
	if s.slot.holder == who {
		n.handOver(who, desired)
		return
	}
	if !s.slot.fresh || !s.slot.exists || !desired || has(n.passive, who) {
		return
	}
	var missing uint8 // sessions that must be dead before this one may acquire the slot
	if h := s.slot.holder; h != 0 && !has(s.dead, h) {
		missing = 1 << h
	}
	if n.from.slot.quarantine {
		missing = n.from.slot.list &^ (s.dead | s.confirmed | 1<<who)
	}
	for h := uint8(1); h <= uint8(n.sessions()); h++ {
		if has(missing, h) {
			n.judge(who, h)
		}
	}
	ready := missing == 0 && (!n.from.slot.quarantine ||
		n.from.slot.listed && (s.slot.seen > takeOver || n.mutation == quarantineDoesNotWait))
	if ready && s.fence > 0 && n.from.onWire(acquire, who, 0) == 0 {
		n.request(acquire, "%s sends: acquire the slot", who, 0, func(*session) {})
	}
}

// judge reads a session's Lease, live, and records what it proves. Only a read that proves
// something is a step.
func (n *successors) judge(who, h uint8) {
	w, r := n.from, n.replica(h)
	if n.mutation != deathFromCache && n.watches(&w, who, r) {
		n.seePeer(&w, who, r)
	}
	s := w.session(who)
	view, lease := &s.peers[r], w.leases[r]
	if lease.created && view.known == 0 {
		view.known = 1
	}
	if !lease.exists && view.absent == 0 {
		view.absent = 1
	}
	switch {
	case n.isSteady(h): // its Lease is not in the world
		if w.slot.quarantine && w.session(h).slot.known {
			s.confirmed |= 1 << h
		}
	case n.deathShown(lease, *view, h):
		s.dead |= 1 << h
		view.absent = 0
	case lease.holder == h && w.slot.quarantine && lease.confirmed:
		s.confirmed |= 1 << h
	}
	if w != n.from {
		n.steps = append(n.steps, step[world]{kind: due, name: label{
			format: "%s reads the session Lease that %s had", first: n.called(who), second: n.called(h),
		}, to: w})
	}
}

// deathShown reports whether a session Lease proves that a session that held it is dead.
func (n *successors) deathShown(lease sessionLease, view peerView, h uint8) bool {
	if view.absent > takeOver {
		return true
	}
	if !lease.exists {
		return n.mutation == absenceProvesDeath || n.mutation == absenceTimedByWatch && !view.exists && view.quiet >= takeOver
	}
	holder := lease.holder
	if n.mutation == deathFromCache {
		holder = view.holder
	}
	return holder != h && (!lease.created || view.known > takeOver || n.mutation == createdProvesDeath)
}

// handOver releases the slot if another session should hold it and nothing of it is in flight.
func (n *successors) handOver(who uint8, desired bool) {
	s := n.from.session(who)
	if !n.plan {
		return
	}
	if s.busy {
		n.add(due, "%s has nothing in flight any more", who, func(w *world) { w.session(who).busy = false })
	} else if n.from.entitled(who) {
		n.add(may, "%s begins something for the slot", who, func(w *world) { w.session(who).busy = desired })
	}
	if s.released && n.mutation == releaseForgotten {
		n.add(may, "%s stops waiting for the answer", who, func(w *world) { w.session(who).released = false })
	}
	if desired || s.busy || !s.slot.fresh || n.from.onWire(release, who, 0) > 0 {
		return
	}
	n.request(release, "%s sends: release the slot", who, 0, func(s *session) { s.released = true })
}

// lead adds what the leader does; any session may be the leader, and several at once.
func (n *successors) lead(who uint8) {
	slot := n.from.slot
	if other := slot.assigned - 1; n.plan && other != n.replica(who) {
		if view := n.from.session(who).peers[other]; view.fresh && view.exists && view.holder == 0 {
			n.add(due, "%s assigns the slot to itself, because no session of the other replica lives", who, func(w *world) {
				w.slot.assigned = 1 + n.replica(who)
				n.slotChanged(w)
			})
		}
	}
	switch {
	case !slot.exists:
		n.add(due, "%s creates the slot Lease again, in quarantine", who, n.createSlot)
	case slot.quarantine && !slot.listed:
		n.add(due, "%s lists the session Leases, and writes the list on the slot Lease", who, func(w *world) { n.listSessions(w, who) })
	case n.plan && n.from.remaining.flips > 0:
		n.add(fault, "%s assigns the slot to the other replica", who, func(w *world) {
			w.remaining.flips--
			w.slot.assigned = 3 - w.slot.assigned
			n.slotChanged(w)
		})
	}
}
