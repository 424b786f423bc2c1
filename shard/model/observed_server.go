package model

// The API server of the observed variant, its network, interventions of users, and time.

// deliver executes a request. Requests that name an old version are not on the wire.
func (f observed) deliver(s *scene, o order) {
	lease := &s.leases[o.on%slotAt]
	slot := &s.leases[slotAt]
	switch o.verb {
	case nothing:
	case create:
		if lease.uid == 0 {
			s.last[o.on]++
			*lease = stored{uid: s.last[o.on], holder: o.from, age: o.age}
			f.changed(s, o.on)
		}
	case acquireSession, renew:
		lease.holder, lease.age = o.from, o.age
		f.changed(s, o.on)
	case empty:
		lease.holder, lease.age = 0, fence
		f.changed(s, o.on)
	case acquire:
		slot.holder, slot.holderUID, slot.acquired = o.from, o.on, true
		if w := s.session(o.from); w.phase == living {
			w.later = s.snapshot
		}
		f.changed(s, slotAt)
	case release:
		slot.holder, slot.holderUID = 0, 0
		f.changed(s, slotAt)
	case makeSlot:
		if slot.uid == 0 {
			f.makeSlot(s, o.clean)
		}
	}
}

func (f observed) makeSlot(s *scene, clean bool) {
	s.last[slotAt]++
	s.leases[slotAt] = stored{uid: s.last[slotAt], acquired: clean}
	f.changed(s, slotAt)
}

// changed marks everything that was known of a Lease as old.
func (f observed) changed(s *scene, i uint8) {
	for j := range f.replicas {
		w := &s.sessions[j]
		w.view[i].current = false
		if i != slotAt {
			w.quiet[i] = 0
		}
		if f.replicas[j] == i && !f.isSteady(uint8(j+1)) {
			w.fresh = false
		}
	}
	for j, o := range s.wire {
		about := o.on == i && o.verb < acquire || i == slotAt && o.verb >= acquire
		if about && o.verb != create && o.verb != makeSlot {
			s.wire[j] = order{}
		}
	}
	s.sortWire()
	s.setSaved(i, false)
}

// remove removes a Lease.
func (f observed) remove(s *scene, i uint8) {
	s.leases[i] = stored{}
	f.changed(s, i)
}

func (n *outcomes) network() {
	for i, o := range n.from.wire {
		if o.verb == nothing || i > 0 && o == n.from.wire[i-1] {
			continue
		}
		apply := func(s *scene) {
			s.wire[i] = order{}
			s.sortWire()
		}
		n.add(due, orderText(o.verb), o.from, func(s *scene) {
			apply(s)
			n.deliver(s, o)
		})
		if n.from.remaining.drops > 0 {
			n.add(fault, "a request of %s is lost", o.from, func(s *scene) {
				s.remaining.drops--
				apply(s)
			})
		}
		if n.from.remaining.repetitions > 0 && o.verb == create {
			n.add(fault, "a request of %s arrives, and will arrive once more", o.from, func(s *scene) {
				s.remaining.repetitions--
				n.deliver(s, o)
			})
		}
	}
}

func orderText(v verb) string {
	if v == makeSlot {
		return "the slot Lease is created by %s"
	}
	return message{verb: v}.text()
}

// byHand adds interventions of users: they delete Leases, remove them in spite of a finalizer, and restore etcd.
func (n *outcomes) byHand() {
	for i := range uint8(maxReplicas + 1) {
		lease := n.from.leases[i]
		if lease.uid == 0 {
			continue
		}
		name, budget := "the slot Lease", n.from.remaining.slotDeletions
		if i != slotAt {
			name, budget = "the session Lease of "+replicaName(i), n.from.remaining.sessionDeletions
		}
		if budget > 0 && !lease.deleting {
			n.add(fault, name+" is deleted by hand", 0, func(s *scene) {
				if i == slotAt {
					s.remaining.slotDeletions--
				} else {
					s.remaining.sessionDeletions--
				}
				if !n.finalizers {
					n.remove(s, i)
					return
				}
				s.leases[i].deleting = true
				n.changed(s, i)
			})
		}
		if n.from.remaining.forced > 0 {
			n.add(fault, name+" is removed by force", 0, func(s *scene) {
				s.remaining.forced--
				n.remove(s, i)
			})
		}
	}
	if n.from.remaining.restores == 0 {
		return
	}
	if !n.from.snapshot {
		n.add(fault, "a snapshot of etcd is taken", 0, n.snapshot)
	} else if n.mutation == restoredTooEarly || !n.anyFence() {
		n.add(fault, "etcd is restored from the snapshot", 0, n.restore)
	}
}

// anyFence reports whether a session may act: etcd is restored while all API servers are unavailable for longer than the fence.
func (n *outcomes) anyFence() bool {
	for i := range n.replicas {
		if n.from.sessions[i].fence > 0 {
			return true
		}
	}
	return false
}

func (f observed) snapshot(s *scene) {
	s.snapshot, s.saved, s.savedVersion = true, s.leases, 1<<(maxReplicas+1)-1
	for i := range s.saved {
		s.saved[i].age = fence
	}
	for j := range f.replicas {
		w := &s.sessions[j]
		w.knewSaved, w.ahead, w.later = w.fresh, false, false
		for i := range w.view {
			w.view[i].saved = w.view[i].current
		}
	}
}

// restore restores the Leases of the snapshot, with the versions that they had. No request on the wire outlives that.
func (f observed) restore(s *scene) {
	s.remaining.restores--
	for j := range f.replicas {
		who, w := uint8(j+1), &s.sessions[j]
		if w.phase != living && w.phase != starting {
			continue
		}
		if s.saved[slotAt].holder == who && f.mutation != restoredNameCounts {
			w.disowns = !w.holds(who) || w.later
		}
		w.fresh = f.isSteady(who) || w.knewSaved && !w.ahead
		for i := range w.view {
			w.view[i].current = w.view[i].saved
			w.view[i].saved = false
		}
		w.knewSaved, w.later, w.quiet = false, false, [maxReplicas]uint8{}
	}
	s.leases, s.wire = s.saved, [maxWire]order{}
	s.snapshot, s.saved, s.savedVersion = false, [maxReplicas + 1]stored{}, 0
}

// time lets a tick pass: on all clocks alike, or with one that is slow or fast.
func (n *outcomes) time() {
	n.add(passing, "time passes", 0, func(s *scene) { n.tick(s, 0, 0) })
	if n.from.remaining.drifts == 0 {
		return
	}
	for i := range n.replicas {
		who := uint8(i + 1)
		if w := n.from.session(who); w.phase != living || w.asleep {
			continue
		}
		if n.from.session(who).fence > 0 {
			n.add(fault, "time passes, but not for %s", who, func(s *scene) {
				s.remaining.drifts--
				n.tick(s, who, 0)
			})
		}
		n.add(fault, "time passes, twice as fast for %s", who, func(s *scene) {
			s.remaining.drifts--
			n.tick(s, 0, who)
		})
	}
}

// exitAfter returns for how many ticks something may be in flight after the slot was lost or the fence has passed.
func (f observed) exitAfter(w *watcher) uint8 {
	if f.mutation == exitsLate && w.fence > 0 {
		return takeOver
	}
	return 1
}

func (n *outcomes) tick(s *scene, slow, fast uint8) {
	for i := range s.leases {
		if s.leases[i].uid != 0 && i != slotAt {
			s.leases[i].age = min(s.leases[i].age+1, fence)
		}
	}
	for i := range s.wire {
		if o := &s.wire[i]; o.verb != nothing && o.verb < acquire {
			o.age = min(o.age+1, fence)
		}
	}
	s.sortWire()
	for i := range n.replicas {
		who := uint8(i + 1)
		w := s.session(who)
		if w.phase != starting && w.phase != living {
			continue
		}
		w.sent = false
		if who != slow && w.fence > 0 {
			w.fence--
		}
		if w.asleep {
			continue
		}
		n.timers(w, who)
		if who == fast {
			n.timers(w, who)
		}
	}
}

func (n *outcomes) timers(w *watcher, who uint8) {
	for r := range uint8(maxReplicas) {
		own := r == n.replica(who)
		if n.inWorld(r) && w.view[r].current && w.view[r].holder != 0 && own == (w.phase == starting) {
			w.quiet[r] = min(w.quiet[r]+1, takeOver)
		}
	}
	if w.orphaned > 0 {
		w.orphaned = min(w.orphaned+1, takeOver+1)
	}
	if w.new > 0 {
		w.new = min(w.new+1, takeOver+1)
	}
	if !n.inFlight || !w.busy {
		return
	}
	if w.lost == 0 && w.fence == 0 {
		w.lost = 1
	} else if w.lost > 0 {
		if w.lost++; w.lost > n.exitAfter(w) {
			*w = watcher{phase: gone}
		}
	}
}

// recycle lets sessions that are gone, and that nothing names, be reused under the same number, as other sessions.
func (f observed) recycle(s *scene) {
	for i := range f.replicas {
		who := uint8(i + 1)
		if !f.once && s.session(who).phase == gone && !s.referenced(who) {
			*s.session(who) = watcher{}
		}
	}
}

func (s *scene) referenced(who uint8) bool {
	for i := range s.leases {
		if s.leases[i].holder == who || s.saved[i].holder == who {
			return true
		}
	}
	for _, o := range s.wire {
		if o.verb != nothing && o.from == who {
			return true
		}
	}
	for i := range s.sessions {
		for _, v := range s.sessions[i].view {
			if v.holder == who {
				return true
			}
		}
	}
	return false
}

// isSaved reports whether a Lease still has the version of the snapshot.
func (s *scene) isSaved(i uint8) bool { return has(s.savedVersion, i) }

func (s *scene) setSaved(i uint8, saved bool) {
	s.savedVersion &^= 1 << i
	if saved {
		s.savedVersion |= 1 << i
	}
}
