package model

// The API server: what a request does when it arrives, and what becomes old by it.

// deliver executes an update. Compare and swap is part of the wire: a message that names an old
// version is not on it, unless a mutation keeps it.
func (f fleet) deliver(w *world, m message) {
	lease := &w.leases[m.on]
	if m.stale && !f.matters(w, m) {
		return
	}
	revives := m.verb != create && !w.targetExists(m)
	switch m.verb {
	case nothing:
	case create:
		if lease.exists {
			return
		}
		*lease = sessionLease{exists: true, created: true, holder: m.from, age: m.age}
		f.sessionChanged(w, m.on)
	case acquireSession:
		lease.confirmed = false
		lease.holder, lease.age, lease.exists = m.from, m.age, true
		lease.created = revives || lease.created && f.mutation != annotationGoesWithSession
		f.sessionChanged(w, m.on)
	case renew:
		lease.exists, lease.holder, lease.age = true, m.from, m.age
		lease.confirmed = lease.confirmed || m.confirm
		f.sessionChanged(w, m.on)
		if s := w.session(m.from); s.phase == living && f.answers {
			s.answer, s.answerFresh = 1+m.age, true
		}
		if revives {
			w.session(m.from).deleted = false
		}
	case empty:
		if h := lease.holder; h != 0 && w.session(h).phase == living {
			w.killed = true
		}
		lease.exists, lease.holder, lease.age, lease.confirmed = true, 0, fence, false
		lease.created = lease.created && f.mutation != annotationGoesWithSession
		f.sessionChanged(w, m.on)
	case acquire:
		w.slot = slotLease{exists: true, holder: m.from, assigned: w.slot.assigned}
		f.slotChanged(w)
		f.endQuarantine(w, revives)
	case release:
		w.slot = slotLease{exists: true, assigned: w.slot.assigned}
		f.slotChanged(w)
		f.endQuarantine(w, revives)
	}
}

// targetExists reports whether the Lease that a message is about exists.
func (w *world) targetExists(m message) bool {
	if m.verb >= acquire {
		return w.slot.exists
	}
	return w.leases[m.on].exists
}

// matters reports whether an update that names an old version has an effect, because of a mutation.
func (f fleet) matters(w *world, m message) bool {
	if f.mutation == takeOverWithoutCompare {
		return m.verb == empty && w.leases[m.on].exists
	}
	return f.mutation == updateWithoutUID && !w.targetExists(m) // an update of a Lease that does not exist creates it
}

// keeps reports whether an update that has become old is still relevant.
func (f fleet) keeps(m message) bool {
	return m.verb == create || f.mutation == updateWithoutUID || f.mutation == takeOverWithoutCompare && m.verb == empty
}

// sessionChanged marks everything that was known of a session Lease as old.
func (f fleet) sessionChanged(w *world, replica uint8) {
	for i := range f.sessions() {
		s := &w.sessions[i]
		f.ageView(&s.peers[replica])
		if f.replicas[i] == replica {
			s.fresh, s.answerFresh = false, false
		}
	}
	f.forget(w, func(m message) bool { return m.verb < acquire && m.on == replica })
}

// ageView marks a view as old. The content of an old view matters to mutations only.
func (f fleet) ageView(view *peerView) {
	view.fresh = false
	if f.mutation != takeOverWithoutCompare && f.mutation != absenceTimedByWatch {
		view.quiet = 0
	}
	if f.mutation != deathFromCache && f.mutation != quarantineListsFromCache {
		view.holder = 0
	}
}

func (f fleet) slotChanged(w *world) {
	for i := range f.sessions() {
		w.sessions[i].slot.fresh = false
	}
	f.forget(w, func(m message) bool { return m.verb >= acquire })
}

// forget removes from the wire what has become old and can have no effect any more.
func (f fleet) forget(w *world, about func(m message) bool) {
	for i, m := range w.wire {
		switch {
		case m.verb == nothing || m.verb == create || !about(m):
		case f.keeps(m):
			w.wire[i].stale = true
		default:
			w.wire[i] = message{}
		}
	}
	w.sortWire()
}

// deleteSession deletes a session Lease, as a user does.
func (f fleet) deleteSession(w *world, replica uint8) {
	w.leases[replica] = sessionLease{}
	f.sessionChanged(w, replica)
	for i := range f.sessions() {
		s := &w.sessions[i]
		s.peers[replica].known = 0
		s.deleted = s.deleted || s.phase == living && f.replicas[i] == replica
	}
}

// deleteSlot deletes the slot Lease, as a user does.
func (f fleet) deleteSlot(w *world) {
	w.slot = slotLease{assigned: w.slot.assigned}
	f.newSlot(w)
}

// createSlot creates the slot Lease again.
func (f fleet) createSlot(w *world) {
	w.slot = slotLease{exists: true, quarantine: true, assigned: w.slot.assigned}
	f.newSlot(w)
}

// endQuarantine forgets what only mattered until the slot Lease was held again.
func (f fleet) endQuarantine(w *world, anew bool) {
	for i := range f.sessions() {
		s := &w.sessions[i]
		s.slot.seen, s.confirmed = 0, 0
		s.slot.known = s.slot.known && !anew
	}
	f.forgetConfirmations(w)
}

// newSlot marks everything that named the UID of the previous slot Lease as old.
func (f fleet) newSlot(w *world) {
	f.slotChanged(w)
	for i := range f.sessions() {
		s := &w.sessions[i]
		s.slot.known, s.slot.seen, s.confirmed = false, 0, 0
	}
	f.forgetConfirmations(w)
}

func (fleet) forgetConfirmations(w *world) {
	for i := range w.leases {
		w.leases[i].confirmed = false
	}
	for i := range w.wire {
		w.wire[i].confirm = false
	}
	w.sortWire()
}

// listSessions lists the holders of the session Leases.
func (f fleet) listSessions(w *world, leader uint8) {
	w.slot.listed = true
	w.slot.list = f.steady
	for r := range w.leases {
		holder := w.leases[r].holder
		if f.mutation == quarantineListsFromCache {
			holder = w.session(leader).peers[r].holder
		}
		if holder != 0 {
			w.slot.list |= 1 << holder
		}
	}
	f.slotChanged(w)
}
