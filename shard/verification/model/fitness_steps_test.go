package model

// The steps of replicas that may be unable to list, or to open slots.

// shifts collects the successors of a state.
type shifts struct {
	fitness
	from  crew
	steps []step[crew]
}

func (f fitness) next(c crew, steps []step[crew]) []step[crew] {
	n, first := &shifts{fitness: f, from: c, steps: steps}, len(steps)
	for r := range f.replicas {
		n.trouble(r)
		if w := c.workers[r]; !w.asleep {
			n.member(r)
			n.leadership(r)
			for slot := range f.slots {
				n.work(r, slot)
			}
			if w.leads && w.acts && w.fence > 0 && !w.blind {
				n.lead()
			}
		}
	}
	if f.late || faultlessKind(n.steps[first:]) == passing {
		n.add(passing, "time passes", 0, n.tick)
	}
	for r := range f.replicas {
		if c.workers[r].asleep { // for any time
			n.add(due, "%s wakes up", r, func(c *crew) { c.worker(r).asleep = false })
		}
	}
	return n.steps
}

// add appends a step, unless it changes nothing.
func (n *shifts) add(k kind, text string, r uint8, do func(c *crew)) {
	c := n.from
	do(&c)
	if c != n.from {
		n.steps = append(n.steps, step[crew]{kind: k, name: label{format: text, first: replicaName(r)}, to: c})
	}
}

// trouble adds the faults of a replica.
func (n *shifts) trouble(r uint8) {
	w := n.from.workers[r]
	strike := func(budget uint8, text string, do func(w *worker, remaining *troubles)) {
		if budget > 0 {
			n.add(fault, text, r, func(c *crew) { do(c.worker(r), &c.remaining) })
		}
	}
	remaining := n.from.remaining
	if remaining.crashes > 0 {
		n.add(fault, "%s is killed", r, func(c *crew) {
			c.remaining.crashes--
			n.end(c, r)
		})
	}
	switch {
	case w.asleep:
	case w.acts:
		strike(remaining.sleeps, "%s is suspended", func(w *worker, remaining *troubles) {
			w.asleep, remaining.sleeps = true, remaining.sleeps-1
		})
	case !w.blind:
		strike(remaining.stucks, "the lists of %s hang, in this process", func(w *worker, remaining *troubles) {
			w.blind, w.stuck, remaining.stucks = true, true, remaining.stucks-1
		})
	}
	if !w.blind {
		strike(remaining.blinds, "lists and watches of %s fail from now on", func(w *worker, remaining *troubles) {
			w.blind, remaining.blinds = true, remaining.blinds-1
		})
	}
	if !w.cut {
		strike(remaining.cuts, "slots of %s do not open any more", func(w *worker, remaining *troubles) {
			w.cut, remaining.cuts = true, remaining.cuts-1
		})
	}
	if w.blind || w.cut {
		strike(remaining.recoveries, "%s recovers", func(w *worker, remaining *troubles) {
			w.blind, w.stuck, w.cut, remaining.recoveries = false, false, false, remaining.recoveries-1
		})
	}
}

// end ends a replica's process, and starts another.
func (f fitness) end(c *crew, r uint8) {
	w := c.worker(r)
	lease := w.lease
	if lease == ours {
		lease = former
	}
	for i := range c.slots {
		if p := &c.slots[i]; p.holder == 1+r && !p.former {
			p.former, p.open, p.opened, p.closedFor = true, false, false, 0
		}
	}
	*w = worker{phase: starting, blind: w.blind && !w.stuck, cut: w.cut, lease: lease, age: w.age, reported: w.reported}
}

// member adds how a replica keeps its session Lease, and what it reports there.
func (n *shifts) member(r uint8) {
	w := n.from.workers[r]
	switch {
	case w.phase == starting:
		if w.lease == vacant || w.lease == former && w.age >= workSilent {
			n.add(due, "%s acquires its session Lease", r, func(c *crew) {
				w := c.worker(r)
				w.phase, w.lease, w.age, w.fence, w.renewed, w.reported = living, ours, 0, workFence, true, report{}
			})
		}
		return
	case !w.renewed:
		n.add(due, "%s renews its session Lease, and reports", r, func(c *crew) { n.renew(c, r) })
	}
	switch {
	case w.acts || w.fence == 0:
	case !w.blind:
		n.add(due, "%s has read all Leases, and acts", r, func(c *crew) { c.worker(r).acts = true })
	case w.idleFor >= blindBound && n.mutation != staysStuck:
		n.add(due, "%s could not list: it empties its session Lease, and restarts", r, func(c *crew) {
			c.worker(r).lease = vacant
			n.end(c, r)
		})
	}
}

func (n *shifts) renew(c *crew, r uint8) {
	w := c.worker(r)
	if w.lease != ours {
		n.end(c, r)
		return
	}
	w.age, w.fence, w.renewed = 0, workFence, true
	w.reported = report{acts: w.acts, observes: w.observes() || n.mutation == silentUnfitness, serves: w.able}
}

// leadership adds the steps about the leader Lease.
func (n *shifts) leadership(r uint8) {
	w := n.from.workers[r]
	if !w.acts {
		return
	}
	own := n.from.leader == 1+r
	able := w.observes() && w.fence > 0
	switch {
	case w.leads && w.fence > 0 && own && (able || n.mutation == blindLeaderLeads):
		n.add(due, "%s renews the leader Lease", r, func(c *crew) { c.leaderAge = 0 })
	case w.leads:
		n.add(due, "%s leads no longer", r, func(c *crew) {
			c.worker(r).leads = false
			if own || n.mutation == emptiesOthers {
				c.emptiedByOther = !own && c.leader != 0
				c.leader, c.leaderAge = 0, 0
			}
		})
	case w.fence > 0 && (able || n.mutation == blindCandidate) && (n.from.leader == 0 || n.from.leaderAge >= workSilent):
		n.add(due, "%s leads", r, func(c *crew) { c.worker(r).leads, c.leader, c.leaderAge = true, 1+r, 0 })
	}
}

// work adds what a replica does with a slot.
func (n *shifts) work(r, slot uint8) {
	w, p := n.from.workers[r], n.from.slots[slot]
	if !w.acts {
		return
	}
	own := p.holder == 1+r && !p.former
	if has(w.mine, slot) && !own && !w.blind {
		n.add(due, "%s sees that it has lost a slot", r, func(c *crew) { c.worker(r).mine &^= 1 << slot })
	}
	if has(w.busy, slot) {
		n.add(due, "%s has nothing in flight any more", r, func(c *crew) { c.worker(r).busy &^= 1 << slot })
	}
	if w.fence == 0 {
		return
	}
	if !own {
		n.acquire(r, slot)
		return
	}
	if !w.blind && !w.cut {
		n.add(due, "%s opens a slot", r, func(c *crew) {
			c.slots[slot].open, c.slots[slot].opened, c.slots[slot].closedFor = true, true, 0
			c.worker(r).able, c.worker(r).failed = serves, 0
		})
	}
	shut := p.closedFor >= openBound && n.mutation != keepsUnopened
	mustRelease := shut || p.assigned != 1+r && !w.blind || !w.observes() && n.mutation != blindKeeps
	switch {
	case n.inFlight && !mustRelease && n.from.entitled(r, slot):
		n.add(may, "%s begins something", r, func(c *crew) { c.worker(r).busy |= 1 << slot })
	case mustRelease && !has(w.busy, slot):
		n.add(due, "%s releases a slot", r, func(c *crew) { n.release(c, r, slot, shut) })
	}
}

// release: a replica releases a slot; one that did not open counts as a failure.
func (n *shifts) release(c *crew, r, slot uint8, shut bool) {
	w := c.worker(r)
	c.slots[slot] = post{assigned: c.slots[slot].assigned}
	w.mine &^= 1 << slot
	switch {
	case !shut:
	case n.mutation == forgetsFailure:
		w.able = untried
	default:
		w.able, w.again = failing, workAgain<<w.failed
		if n.mutation != backOffStaysShort {
			w.failed = min(w.failed+1, mostFailed)
		}
	}
}

// acquire: the assigned replica acquires a slot that is free or whose holder is dead.
func (n *shifts) acquire(r, slot uint8) {
	w, p := n.from.workers[r], n.from.slots[slot]
	free := p.holder == 0 || n.from.isDead(p)
	if !free && n.mutation == acquiresFromUnfit && !n.from.workers[p.holder-1].reported.observes {
		free = true
	}
	if p.assigned == 1+r && free && w.observes() && w.again == 0 {
		n.add(due, "%s acquires a slot", r, func(c *crew) {
			c.slots[slot] = post{holder: 1 + r, assigned: p.assigned}
			c.worker(r).mine |= 1 << slot
		})
	}
}

// lead: the leader declares silent sessions dead, and assigns slots to replicas that can do the
// work.
func (n *shifts) lead() {
	for other := range n.replicas {
		if w := n.from.workers[other]; w.lease != vacant && w.age >= workSilent {
			n.add(due, "%s is declared dead", other, func(c *crew) { c.worker(other).lease, c.worker(other).age = vacant, 0 })
		}
	}
	for slot := range n.slots {
		n.plan(slot)
	}
}

// isFit reports whether slots can be assigned to a replica, according to its session Lease.
func (n *shifts) isFit(r uint8) bool {
	w := n.from.workers[r]
	reported := w.reported
	acts := reported.acts || n.mutation == assignsBeforeActing
	return w.lease != vacant && (acts && reported.observes && reported.serves != failing || n.mutation == assignsToAllLiving)
}

// assigned counts the slots that are assigned to a replica.
func (n *shifts) assigned(r uint8) (count int) {
	for _, p := range n.from.slots[:n.slots] {
		if p.assigned == 1+r {
			count++
		}
	}
	return count
}

// plan reassigns a slot whose assigned replica cannot do the work, or has all slots while another
// that can has none. If no replica is fit, the slot stays.
func (n *shifts) plan(slot uint8) {
	p := n.from.slots[slot]
	stays := p.assigned != 0 && n.isFit(p.assigned-1)
	best, found := uint8(0), false
	for r := range n.replicas {
		reported := n.from.workers[r].reported
		switch {
		case 1+r == p.assigned || !n.isFit(r):
		case stays && (n.assigned(r) > 0 || n.assigned(p.assigned-1) < 2):
		case reported.serves != serves && n.assigned(r) > 0 && n.mutation != noProbe:
		case !found || reported.serves == serves && n.from.workers[best].reported.serves != serves:
			best, found = r, true
		}
	}
	if !found {
		return
	}
	n.add(due, "a slot is assigned to %s", best, func(c *crew) {
		reported := c.workers[best].reported
		c.slots[slot].assigned = 1 + best
		c.movedFromServing = n.from.isServed(slot) && !reported.acts
		c.secondProbe = reported.serves != serves && n.assigned(best) > 0
	})
}

func (f fitness) tick(c *crew) {
	c.leaderAge = min(c.leaderAge+1, workSilent)
	for r := range f.replicas {
		w := c.worker(r)
		w.age = min(w.age+1, workSilent)
		w.renewed = false
		if w.fence > 0 {
			w.fence--
		}
		if w.asleep || w.phase == starting {
			continue
		}
		if w.blindFor = min(w.blindFor+1, blindBound); !w.blind {
			w.blindFor = 0
		}
		if w.idleFor = min(w.idleFor+1, blindBound); w.acts {
			w.idleFor = 0
		}
		if w.again > 0 {
			if w.again--; w.again == 0 && w.able == failing {
				w.able = untried
			}
		}
		for i := range f.slots {
			f.clock(w, &c.slots[i], r)
		}
	}
}

// clock counts for how long a slot has not been open.
func (f fitness) clock(w *worker, p *post, r uint8) {
	if p.holder != 1+r || p.former {
		return
	}
	if w.cut {
		p.open = false
	}
	if !p.open && (!p.opened || f.mutation != openedOnceIsServed) {
		p.closedFor = min(p.closedFor+1, openBound)
	}
}
