package model

import (
	"fmt"
	"strings"
)

// The rules about replicas that live and cannot work, each left out.
const (
	keepsUnopened       mutation = "a holder keeps a slot that does not open"
	openedOnceIsServed  mutation = "a slot that has been open counts as open"
	forgetsFailure      mutation = "a replica that could not open a slot acquires, and counts as fit, again at once"
	backOffStaysShort   mutation = "the back-off after a slot that did not open stays at 30 s"
	blindKeeps          mutation = "a session that does not observe keeps its slots"
	silentUnfitness     mutation = "a session does not report that it does not observe"
	staysStuck          mutation = "a session that cannot list never restarts"
	blindLeaderLeads    mutation = "a leader that does not observe renews the leader Lease"
	blindCandidate      mutation = "a session that does not observe is a candidate"
	emptiesOthers       mutation = "a session empties the leader Lease of its successor"
	assignsToAllLiving  mutation = "the leader assigns slots to all replicas that renew"
	assignsBeforeActing mutation = "the leader assigns slots to replicas that do not act yet"
	noProbe             mutation = "an untried replica gets more than one slot"
	acquiresFromUnfit   mutation = "a slot is taken over from a session that reports that it does not observe"
)

// Durations of the model of fitness, in ticks of about 5 s.
const (
	workFence  = 2 // after the last renewal
	workSilent = 3 // without a renewal: 15 s
	blindBound = 3 // without observing, or holding the session Lease without acting: 15 s
	openBound  = 6 // for a slot that does not open: 30 s
	workAgain  = 6 // after the first failure to open a slot, before another is acquired; doubled by the next ones
	mostFailed = 2 // times that this is doubled
)

const maxPosts = 2

// fitness is the model of replicas that renew their session Leases, and may be unable to list and
// watch, or to open slots. Requests about single Leases take effect at once: the effects of late
// ones are the subject of fleet.
type fitness struct {
	name     string
	replicas uint8
	slots    uint8
	inFlight bool
	late     bool // what is due may happen later
	faults   troubles
	mutation mutation
}

// troubles are budgets of faults. A fault that has begun lasts, unless a recovery is left.
type troubles struct {
	crashes, sleeps, blinds, stucks, cuts, recoveries uint8
}

type serving uint8

const (
	untried serving = iota
	serves
	failing
)

// crew is a state: the replicas, their slots, and who leads.
type crew struct {
	workers          [maxReplicas]worker
	slots            [maxPosts]post
	leader           uint8 // 1 + a replica; 0 is none
	leaderAge        uint8 // ticks since the leader Lease was renewed
	remaining        troubles
	emptiedByOther   bool // a leader Lease was emptied by another session than its holder
	movedFromServing bool // a slot that was served was moved to a replica that had not reported that it acts
	secondProbe      bool // a replica that was never seen to serve was given a second slot
}

type ownership uint8

const (
	vacant ownership = iota
	ours             // the replica's present process holds the session Lease
	former           // an earlier process holds it, according to the Lease
)

// worker is a replica: its process, its session Lease, and its faults.
type worker struct {
	phase  phase // starting: without its session Lease
	acts   bool  // has read all Leases
	leads  bool  // as far as it knows
	asleep bool
	blind  bool // lists and watches fail, requests about single Leases succeed
	stuck  bool // blind, and another process would not be
	cut    bool // its slots do not open

	renewed           bool
	fence             uint8
	blindFor, idleFor uint8
	able              serving
	mine, busy        uint8 // sets of slots: those that it holds, as far as it knows; those of which something is in flight
	failed, again     uint8 // failures in a row to open a slot; ticks before it acquires again

	lease    ownership
	age      uint8 // ticks since it was renewed
	reported report
}

// report contains what a session Lease reports of its session.
type report struct {
	acts, observes bool
	serves         serving
}

// post is a slot Lease, and what its holder does with it.
type post struct {
	holder, assigned uint8 // 1 + a replica; 0 is none
	former           bool  // it names an earlier session of that replica
	open, opened     bool
	closedFor        uint8
}

func (c *crew) worker(r uint8) *worker { return &c.workers[r] }

func (w *worker) observes() bool { return w.blindFor < blindBound }

// entitled reports whether a replica's process may start something for a slot, as far as it knows.
func (c *crew) entitled(r, slot uint8) bool {
	w := c.workers[r]
	return has(w.mine, slot) && w.phase == living && w.acts && !w.asleep && w.fence > 0
}

// isServed reports whether the slot's holder works on it.
func (c *crew) isServed(slot uint8) bool {
	p := c.slots[slot]
	if p.holder == 0 || !c.entitled(p.holder-1, slot) {
		return false
	}
	w := c.workers[p.holder-1]
	return p.open && !w.blind && !w.cut
}

// isDead reports whether the session that a slot Lease names is known to be dead.
func (c *crew) isDead(p post) bool {
	lease := c.workers[p.holder-1].lease
	return p.former && lease != former || !p.former && lease != ours
}

func (f fitness) start() crew {
	c := crew{remaining: f.faults, leader: 1}
	for r := range f.replicas {
		c.workers[r] = worker{
			phase: living, acts: true, leads: r == 0, fence: workFence, lease: ours, reported: report{acts: true, observes: true},
		}
	}
	c.workers[0].able, c.workers[0].reported.serves = serves, serves
	for i := range f.slots {
		c.workers[0].mine |= 1 << i
		c.slots[i] = post{holder: 1, assigned: 1, open: true, opened: true}
	}
	return c
}

func (f fitness) broken(c crew) string {
	switch {
	case c.emptiedByOther:
		return "a leader Lease was emptied by another session than its holder"
	case c.movedFromServing:
		return "a slot that was served was moved to a replica that does not act"
	case c.secondProbe:
		return "a replica that was not seen to serve was given a second slot"
	}
	for slot := range f.slots {
		for one := range f.replicas {
			for other := range f.replicas {
				switch {
				case one == other || !c.entitled(other, slot):
				case c.entitled(one, slot):
					return fmt.Sprintf("replicas %s and %s are entitled at once", replicaName(min(one, other)), replicaName(max(one, other)))
				case has(c.workers[one].busy, slot) && c.workers[one].fence > 0:
					return fmt.Sprintf("replica %s is entitled while something of %s is in flight", replicaName(other), replicaName(one))
				}
			}
		}
	}
	return ""
}

// good reports whether all slots are served, or no replica could serve them.
func (f fitness) good(c crew) bool {
	fit := false
	for _, w := range c.workers[:f.replicas] {
		fit = fit || !w.cut && (!w.blind || w.stuck)
	}
	for slot := range f.slots {
		if fit && !c.isServed(slot) {
			return false
		}
	}
	return true
}

func (f fitness) describe(c crew) string {
	var b strings.Builder
	for r, w := range c.workers[:f.replicas] {
		fmt.Fprintf(&b, "%s: acts %v, blind %v, cut %v; ", replicaName(uint8(r)), w.acts, w.blind, w.cut)
	}
	for i, p := range c.slots[:f.slots] {
		fmt.Fprintf(&b, "slot %d: held by %s, assigned to %s; ", i, workerName(p.holder), workerName(p.assigned))
	}
	return b.String() + "leader: " + workerName(c.leader)
}

func workerName(r uint8) string {
	if r == 0 {
		return "none"
	}
	return replicaName(r - 1)
}
