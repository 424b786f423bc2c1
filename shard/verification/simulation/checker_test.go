package simulation

import (
	"fmt"
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// checker observes the whole world, and remembers the first violation.
type checker struct {
	w         *world
	violation string
	at        time.Duration
	stuck     bool // the violation is that the fleet does not come to rest
	// created are the sessions that have created their Lease, with the request; held those that have
	// ever held one; tampered are the Leases that a user has changed or removed.
	created        map[string]uint64
	held, tampered map[string]bool
	restored       time.Duration // when etcd was; zero: never
	epochs         map[string]int64
	edits          map[int]edit // the last time that a user has written a holder into the Lease of a slot
	tally          tally
}

// tally counts what happened in a run, to show that the runs cover enough.
type tally struct {
	Acts, Late, Acquired, TakenOver, Suspended, Declared int
	Exits                                                map[protocol.Reason]int
}

func newChecker(w *world) checker {
	return checker{
		w: w, created: map[string]uint64{}, held: map[string]bool{}, tampered: map[string]bool{}, epochs: map[string]int64{},
		edits: map[int]edit{}, tally: tally{Exits: map[protocol.Reason]int{}},
	}
}

func (c *checker) fail(format string, args ...any) {
	if c.violation == "" {
		c.violation, c.at = fmt.Sprintf(format, args...), c.w.now
		c.w.report("VIOLATION: %s", c.violation)
	}
}

// afterRestore reports whether etcd was restored so recently that its contents contradict what has
// happened since.
func (c *checker) afterRestore() bool {
	return c.restored != 0 && c.w.now-c.restored < 4*c.w.config.TakeOver
}

// edit is a holder that a user has written into a slot Lease.
type edit struct {
	at      time.Duration
	version int64 // of the Lease
	// unproven is the holder that was written, if it had not held its session Lease yet. It counts as
	// dead until it does.
	unproven string
}

// overwritten records that the next version of a slot Lease has a holder that a user has written.
func (c *checker) overwritten(slot int, holder string) {
	c.edits[slot] = edit{at: c.w.now, version: c.w.api.version + 1}
	if !c.held[holder] {
		c.edits[slot] = edit{at: c.w.now, version: c.w.api.version + 1, unproven: holder}
	}
}

// isBlind reports whether a process holds a slot whose Lease a user has taken from it, and has not
// observed that: until it does it may act at the same time as a new holder.
func (c *checker) isBlind(p *process, slot int) bool {
	e, edited := c.edits[slot]
	return edited && p.work[slot].since <= e.at && p.seen[slot] < e.version
}

// stepped checks that no other process is entitled to what the process is entitled to.
func (c *checker) stepped(p *process) {
	c.tally.Suspended += p.suspensions
	p.suspensions = 0
	for slot := range p.entitled {
		if !p.owns(slot) {
			continue
		}
		if other := c.otherOwner(p, slot); other != nil {
			c.fail("slot %d: %s (epoch %d) and %s (epoch %d) are both entitled", slot, p.session, p.epochs[slot], other.session, other.epochs[slot])
		}
	}
}

// otherOwner returns another process that is entitled to the slot, where there should be none.
func (c *checker) otherOwner(p *process, slot int) *process {
	for _, other := range c.w.processes {
		if other != p && other.owns(slot) && !c.isBlind(p, slot) && !c.isBlind(other, slot) {
			return other
		}
	}
	return nil
}

// acts is called when the process has checked that it may start a side effect.
func (c *checker) acts(p *process, slot int) {
	c.tally.Acts++
	if other := c.otherOwner(p, slot); other != nil {
		c.fail("slot %d: %s acts while %s is entitled", slot, p.session, other.session)
	}
}

// lands is called when the side effect is sent. Only a process that was stopped since its check may
// be late.
func (c *checker) lands(p *process, slot int, began time.Duration) {
	if c.otherOwner(p, slot) == nil {
		return
	}
	c.tally.Late++
	if p.resumed < began {
		c.fail("slot %d: what %s began at %v was sent late, although it was running all the time", slot, p.session, began)
	}
}

// preconditions checks an update as it arrives.
func (c *checker) preconditions(by *process, req member.Request) {
	if req.Lease.UID == "" || req.Lease.ResourceVersion == "" {
		c.fail("%s updates %s without UID or resourceVersion", by.session, req.Name)
	}
}

// written is called when a version of a Lease is about to be stored; by is nil for users.
func (c *checker) written(by *process, old, l *coordinationv1.Lease, req member.Request) {
	if by == nil {
		c.w.report("a user edits %s", brief(l))
		return
	}
	if c.w.story != nil {
		c.w.report("%s: %s %s", by.session, req.Verb, brief(l))
	}
	if slot, ok := member.SlotOfLease(fleetName, l.Name, c.w.slots); ok {
		c.slotWritten(by, slot, old, l, req)
	} else if replica, ok := member.ReplicaOfLease(fleetName, l.Name); ok {
		c.sessionWritten(by, replica, old, l, req)
	} else if replica, ok := member.ReplicaOfReport(fleetName, l.Name); ok {
		c.reportWritten(by, replica, l, req)
	}
}

func (c *checker) slotWritten(by *process, slot int, old, l *coordinationv1.Lease, req member.Request) {
	before, after := member.Holder(old), member.Holder(l)
	if assigned := v1alpha1.AnnotationAssignedReplica; (old == nil || old.Annotations[assigned] != l.Annotations[assigned]) &&
		l.Annotations[assigned] != "" && req.Need != member.NeedLeadership {
		c.fail("slot %d: %s writes the assigned replica in a request that needs only %s", slot, by.session, req.Need)
	}
	if before == after {
		return
	}
	if after == "" {
		if before != by.session && !c.isDead(before) && !c.tampered[l.Name] && !c.afterRestore() {
			c.fail("slot %d: %s clears its holder %s, which is not dead", slot, by.session, before)
		}
		return
	}
	c.tally.Acquired++
	if after != by.session || req.Need != member.NeedFence {
		c.fail("slot %d: %s writes %s as its holder in a request that needs only %s", slot, by.session, after, req.Need)
	}
	if before != "" {
		c.tally.TakenOver++
		if !c.isDead(before) && !c.afterRestore() && c.edits[slot].unproven != before {
			c.fail("slot %d: %s takes it over from %s, which is not dead", slot, by.session, before)
		}
	}
	if epoch := member.Transitions(l); epoch <= c.epochs[string(l.UID)] && c.epochs[string(l.UID)] != math.MaxInt32 && !c.afterRestore() {
		c.fail("slot %d: %s acquires it with epoch %d, after %d", slot, by.session, epoch, c.epochs[string(l.UID)])
	}
	c.epochs[string(l.UID)] = member.Transitions(l)
	for _, other := range c.w.processes {
		e, edited := c.edits[slot]
		ended := edited && other.work[slot].since <= e.at // after an edit what it had begun may take longer
		if other != by && other.mode == running && len(other.work[slot].calls) > 0 && c.w.now-other.resumed > c.w.config.TakeOver && !ended {
			c.fail("slot %d: %s acquires it while %s, which was running all the time, has something of it in flight",
				slot, by.session, other.session)
		}
	}
}

// isDead reports whether a session does not hold its Lease.
func (c *checker) isDead(session string) bool {
	replica, ok := member.ReplicaOf(session)
	return !ok || member.Holder(c.w.api.leases[member.SessionLeaseName(fleetName, replica)]) != session
}

func (c *checker) sessionWritten(by *process, replica string, old, l *coordinationv1.Lease, req member.Request) {
	before, after := member.Holder(old), member.Holder(l)
	if old == nil {
		if first, again := c.created[by.session]; again && first != req.ID { // the network may repeat the first
			c.fail("%s creates its session Lease twice", by.session)
		}
		c.created[by.session] = req.ID
	}
	if before == after {
		return
	}
	if after != "" && (after != by.session || replica != by.pod.name) {
		c.fail("%s writes %s as the holder of %s", by.session, after, l.Name)
	}
	c.held[after] = true
	if before != "" && before != by.session {
		c.tally.Declared++
		if c.w.faults.onlyOutages {
			c.fail("%s declares %s dead, although only the API server was unavailable", by.session, before)
		}
	}
}

// reportWritten checks that only a session that may act writes a report, and only that of its own
// replica.
func (c *checker) reportWritten(by *process, replica string, l *coordinationv1.Lease, req member.Request) {
	if replica != by.pod.name || member.Holder(l) != by.session || req.Need != member.NeedFence {
		c.fail("%s writes the report %s of %s in a request that needs only %s", by.session, l.Name, member.Holder(l), req.Need)
	}
}

// exited is called when a process ends by itself.
func (c *checker) exited(p *process, e *protocol.Exit) {
	c.tally.Exits[e.Reason]++
	lease := c.w.api.leases[member.SessionLeaseName(fleetName, p.pod.name)]
	holds := member.Holder(lease) == p.session
	switch e.Reason {
	case protocol.ReasonLeft:
		if !p.leaving {
			c.fail("%s leaves without having been asked to: %s", p.session, e.Message)
		}
		if e.Empty && holds && !c.afterRestore() {
			c.fail("%s reports that its session Lease is empty, but it is not", p.session)
		}
		for slot := range c.w.slots {
			name := member.SlotLeaseName(fleetName, slot, c.w.slots)
			if e.Empty && member.Holder(c.w.api.leases[name]) == p.session && !c.tampered[name] && !c.afterRestore() {
				c.fail("%s has left, but holds slot %d", p.session, slot)
			}
		}
	case protocol.ReasonLost:
		if holds && p.active && !c.tampered[lease.Name] && c.restored == 0 {
			c.fail("%s reports that it has lost its session Lease, but it has not: %s", p.session, e.Message)
		}
	case protocol.ReasonInFlight:
		busy := slices.ContainsFunc(p.work, func(w work) bool { return len(w.calls) > 0 })
		if !busy && c.w.now-p.resumed > time.Second { // a resumed process notices the elapsed time before it reads the answer
			c.fail("%s exits because of what is in flight, but nothing is: %s", p.session, e.Message)
		}
		if e.Empty {
			c.fail("%s exits because of what is in flight, but has emptied its session Lease", p.session)
		}
	case protocol.ReasonMismatch:
		c.fail("%s exits: %s", p.session, e.Message)
	case protocol.ReasonUnfit: // lists or writes have failed for too long; the durations are tested in shard/session/protocol
	}
	if c.w.faults.onlyOutages && c.held[p.session] {
		c.fail("%s exits, although only the API server was unavailable: %s", p.session, e.Message)
	}
}

// atRest returns what is missing for every slot to be held by a living session that it is assigned
// to and that works; "" if nothing is.
func (c *checker) atRest() (missing string) {
	for slot := range c.w.slots {
		l := c.w.api.leases[member.SlotLeaseName(fleetName, slot, c.w.slots)]
		holder := member.Holder(l)
		owner := slices.IndexFunc(c.w.processes, func(p *process) bool { return p.session == holder && p.mode == running })
		switch {
		case owner < 0:
			return fmt.Sprintf("slot %d has no living holder: %s", slot, brief(l))
		case l.Annotations[v1alpha1.AnnotationAssignedReplica] != c.w.processes[owner].pod.name:
			return fmt.Sprintf("slot %d is not held by its assigned replica: %s", slot, brief(l))
		case !c.w.processes[owner].owns(slot):
			return fmt.Sprintf("%s holds slot %d, but is not entitled to it", holder, slot)
		case !c.w.processes[owner].work[slot].open || c.w.processes[owner].work[slot].stopping:
			return fmt.Sprintf("%s holds slot %d, but admits no keys", holder, slot)
		}
	}
	for _, p := range c.w.processes {
		if p.mode == running && p.machine.Suspended() {
			return p.session + " is suspended"
		}
		report := c.w.api.leases[member.ReportLeaseName(fleetName, p.pod.name)]
		if p.mode == running && p.holds() && member.Holder(report) != p.session {
			return p.session + " has not reported the weights of its slots"
		}
	}
	return ""
}
