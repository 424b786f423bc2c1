package model

// The steps of a session of the observed variant.

// makeSlot is the leader's request for a slot Lease that is missing.
const makeSlot = release + 1

// outcomes collects the successors of a scene.
type outcomes struct {
	observed
	from  scene
	steps []step[scene]
}

func (f observed) next(s scene, steps []step[scene]) []step[scene] {
	first := len(steps)
	n := &outcomes{observed: f, from: s, steps: steps}
	n.network()
	for i := range f.replicas {
		n.life(uint8(i + 1))
	}
	n.byHand()
	n.time()
	for i := range n.steps[first:] {
		n.recycle(&n.steps[first+i].to)
	}
	return n.steps
}

// add appends a step, unless it changes nothing.
func (n *outcomes) add(k kind, text string, who uint8, do func(s *scene)) {
	s := n.from
	do(&s)
	if s != n.from {
		n.steps = append(n.steps, step[scene]{kind: k, name: label{format: text, first: n.called(who)}, to: s})
	}
}

// request adds the sending of a request.
func (n *outcomes) request(o order, text string, note func(w *watcher)) {
	s := n.from
	if n.from.onWire(o.verb, o.from, o.on) == 0 && s.send(o) {
		note(s.session(o.from))
		n.steps = append(n.steps, step[scene]{kind: due, name: label{format: text, first: n.called(o.from), second: n.leaseName(o)}, to: s})
	}
}

func (n *outcomes) leaseName(o order) string {
	if o.verb >= acquire {
		return "the slot"
	}
	return replicaName(o.on)
}

func (n *outcomes) life(who uint8) {
	w := n.from.session(who)
	switch w.phase {
	case notStarted:
		n.startProcess(who)
		return
	case gone:
		return
	case starting, living:
	}
	if !n.isSteady(who) {
		n.processFaults(who)
	}
	if w.asleep {
		return
	}
	n.add(due, "%s observes", who, func(s *scene) { n.observe(s, who) })
	if n.mutation == slotWatchedApart {
		n.add(due, "%s sees the slot Lease", who, func(s *scene) { n.see(s, who, slotAt) })
	}
	if w.phase == starting {
		n.begin(who)
		return
	}
	n.add(due, "%s receives the answer to its acquisition", who, func(s *scene) {
		if s.leases[slotAt].holder == who && !s.session(who).disowns {
			n.see(s, who, slotAt)
		}
	})
	if !n.isSteady(who) {
		n.renew(who)
	}
	if w.fence > 0 {
		n.lead(who)
	}
	n.hold(who)
}

func (n *outcomes) startProcess(who uint8) {
	k := due
	for i := range n.replicas {
		other := n.from.sessions[i]
		if n.replicas[i] != n.replica(who) {
			continue
		}
		if other.phase == notStarted && uint8(i+1) < who {
			return // they are all alike
		}
		if other.phase == starting || other.phase == living {
			k = fault
		}
	}
	if k == fault && n.from.remaining.twins == 0 {
		return
	}
	n.add(k, "%s starts", who, func(s *scene) {
		if k == fault {
			s.remaining.twins--
		}
		s.session(who).phase = starting
	})
}

func (n *outcomes) processFaults(who uint8) {
	w := n.from.session(who)
	if n.from.remaining.crashes > 0 {
		n.add(fault, "%s is killed", who, func(s *scene) {
			s.remaining.crashes--
			*s.session(who) = watcher{phase: gone}
		})
	}
	if w.asleep {
		n.add(due, "%s wakes up", who, func(s *scene) { s.session(who).asleep = false })
	} else if n.from.remaining.sleeps > 0 && w.phase == living {
		n.add(fault, "%s is suspended", who, func(s *scene) {
			s.remaining.sleeps--
			s.session(who).asleep = true
		})
	}
}

// begin: a starting session creates its session Lease, or acquires it when it is empty or has not changed for a long time.
func (n *outcomes) begin(who uint8) {
	w, r := n.from.session(who), n.replica(who)
	view := w.view[r]
	free := view.holder == 0 || w.quiet[r] >= takeOver
	switch {
	case !view.current || n.from.onWire(create, who, r)+n.from.onWire(acquireSession, who, r) > 0:
	case view.uid == 0:
		n.request(order{verb: create, from: who, on: r}, "%s sends: create the session Lease of %s", func(*watcher) {})
	case view.deleting && free:
		n.add(due, "%s removes the finalizer of its session Lease", who, func(s *scene) { n.remove(s, r) })
	case free:
		n.request(order{verb: acquireSession, from: who, on: r}, "%s sends: acquire the session Lease of %s", func(*watcher) {})
	}
}

// renew: a living session keeps its Lease. Its answers and reads let it send the next renewal; what it observes extends its
// fence. A session whose Lease is being deleted releases its slot and ends.
func (n *outcomes) renew(who uint8) {
	w, r := n.from.session(who), n.replica(who)
	if !w.fresh {
		n.add(due, "%s receives the answer to its renewal", who, func(s *scene) {
			n.keep(s, who, n.mutation == blindHolderActs)
		})
	} else if s := n.from; !w.sent && s.onWire(renew, who, r) < max(n.attempts, 1) && s.send(order{verb: renew, from: who, on: r}) {
		s.session(who).sent = true
		n.steps = append(n.steps, step[scene]{kind: due, name: label{format: "%s sends a renewal", first: n.called(who)}, to: s})
	}
	ends := w.fresh && n.from.leases[r].deleting && !w.holds(who)
	if (n.from.remaining.leaves > 0 || ends) && !w.busy && w.fresh {
		s := n.from
		k := due
		if !ends {
			s.remaining.leaves--
			k = fault
		}
		if s.send(order{verb: empty, from: who, on: r, age: fence}) {
			*s.session(who) = watcher{phase: gone}
			n.steps = append(n.steps, step[scene]{kind: k, name: label{format: "%s sends: it leaves", first: n.called(who)}, to: s})
		}
	}
}

// keep applies the session's own Lease, and ends a session that does not hold it any more.
func (f observed) keep(s *scene, who uint8, shown bool) {
	w, lease := s.session(who), &s.leases[f.replica(who)]
	if lease.holder != who || lease.uid != w.uid || w.ahead && !s.snapshot {
		*w = watcher{phase: gone}
		return
	}
	w.fresh = true
	w.ahead = s.snapshot && (w.ahead || !s.isSaved(f.replica(who)))
	if shown {
		w.fence = max(w.fence, fence-lease.age)
	}
}

// observe updates everything that a session knows: by an event of the watch, or a list. What lies between two versions is
// skipped; a view that stays at one of them was updated immediately before.
func (f observed) observe(s *scene, who uint8) {
	w := s.session(who)
	for i := range w.view {
		if i != slotAt || f.mutation != slotWatchedApart {
			f.see(s, who, uint8(i))
		}
	}
	switch r := f.replica(who); {
	case f.isSteady(who):
		w.fence = fence
	case w.phase == living:
		f.keep(s, who, true)
	case s.leases[r].holder == who: // it has its session Lease
		w.phase, w.uid, w.fresh = living, s.leases[r].uid, true
		w.ahead = s.snapshot && !s.isSaved(r)
		w.fence = fence - s.leases[r].age
	}
	if w.phase == gone {
		return
	}
	slot := w.view[slotAt]
	switch h := slot.holder; {
	case h == 0 || h == who || f.isSteady(h) || w.view[f.replica(h)].uid == slot.holderUID:
		w.orphaned = 0
	case w.orphaned == 0:
		w.orphaned = 1
	}
	if w.holds(who) && w.fence > 0 {
		w.lost = 0
	}
}

// see applies one Lease.
func (f observed) see(s *scene, who, i uint8) {
	w := s.session(who)
	view, lease := &w.view[i], s.leases[i]
	before, held := *view, w.holds(who)
	*view = glimpse{
		uid: lease.uid, holder: lease.holder, holderUID: lease.holderUID, deleting: lease.deleting, acquired: lease.acquired,
		current: true, saved: s.isSaved(i),
	}
	if i != slotAt {
		return
	}
	if !before.current {
		w.released = false
	}
	if before.holder != view.holder || before.holderUID != view.holderUID || before.uid != view.uid {
		w.orphaned, w.disowns = 0, w.disowns && view.holder == who && before.uid == view.uid
	}
	switch {
	case view.uid == 0 || view.acquired:
		w.new = 0
	case before.uid != view.uid || w.new == 0:
		w.new = 1
	}
	if held && !w.holds(who) && w.busy {
		w.lost = 1
	}
}

// dead reports whether the holder of the slot is dead, according to what a session has observed. A session that has lost the
// Lease under which it acquired the slot never regains it. If that Lease still exists, the session that emptied or acquired it
// has waited; if it is gone, the session may act until its fence.
func (f observed) dead(w *watcher) bool {
	slot := w.view[slotAt]
	if f.isSteady(slot.holder) {
		return false
	}
	lease := w.view[f.replica(slot.holder)]
	switch {
	case lease.uid == 0 && f.mutation == missingIsDead:
		return true
	case lease.uid == slot.holderUID || lease.uid != 0 && f.mutation == otherUIDIsDead:
		return lease.holder != slot.holder
	}
	return w.orphaned > takeOver
}

// hold adds what a session does about the slot.
func (n *outcomes) hold(who uint8) {
	w := n.from.session(who)
	slot := w.view[slotAt]
	desired := !slot.deleting && (n.isSteady(who) || !n.from.leases[n.replica(who)].deleting)
	if n.inFlight && w.busy {
		n.add(due, "%s has nothing in flight any more", who, func(s *scene) { s.session(who).busy, s.session(who).lost = false, 0 })
	} else if n.inFlight && n.from.entitled(who) && desired && !n.isSteady(who) {
		n.add(may, "%s begins something for the slot", who, func(s *scene) { s.session(who).busy = true })
	}
	if slot.holder == who {
		if slot.current && !w.busy && (!desired || w.disowns) {
			n.request(order{verb: release, from: who}, "%s sends: release %s", func(w *watcher) { w.released = true })
		}
		return
	}
	waited := w.new == 0 || w.new > takeOver || n.mutation == newSlotAtOnce
	if slot.current && slot.uid != 0 && desired && !has(n.passive, who) && w.fence > 0 && waited && (slot.holder == 0 || n.dead(w)) &&
		n.from.onWire(acquire, who, w.uid) == 0 {
		n.request(order{verb: acquire, from: who, on: w.uid}, "%s sends: acquire %s", func(*watcher) {})
	}
}

// lead adds what the leader does. Any session may be the leader, and several at once.
func (n *outcomes) lead(who uint8) {
	w := n.from.session(who)
	for r := range uint8(maxReplicas) {
		view := w.view[r]
		if r == n.replica(who) || !n.inWorld(r) || !view.current {
			continue
		}
		if view.holder != 0 && w.quiet[r] >= takeOver {
			n.request(order{verb: empty, from: who, on: r, age: fence}, "%s sends: the session of %s is dead", func(*watcher) {})
		}
		if view.deleting && view.holder == 0 {
			n.add(due, "%s removes the finalizer of a session Lease", who, func(s *scene) { n.remove(s, r) })
		}
	}
	slot := w.view[slotAt]
	switch {
	case !slot.current:
	case slot.uid == 0 && n.mutation == cleanSlotAtOnce:
		n.request(order{verb: makeSlot, from: who, clean: slot.deleting}, "%s sends: create %s", func(*watcher) {})
	case slot.uid == 0:
		n.add(due, "%s creates the slot Lease", who, func(s *scene) { n.makeSlot(s, false) })
	case slot.deleting && (slot.holder == 0 || slot.holder != who && n.dead(w) || n.mutation == finalizedWhileHeld):
		n.add(due, "%s removes the finalizer of the slot Lease", who, func(s *scene) {
			n.remove(s, slotAt)
			// The last event of the watch shows the state before.
			s.leases[slotAt].deleting = n.mutation == cleanSlotAtOnce && slot.holder == 0 && slot.acquired
		})
	}
}
