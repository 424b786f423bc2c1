package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// slots is how many a lab's fleet has by default.
const slots = 256

// journal records holders and moves of slots from the fleet's Leases. Create one with newJournal,
// and pass it every version of every Lease, in order.
type journal struct {
	sessions map[string]string // by replica, "" once it has ended
	leader   string            // a session
	slots    map[int]slotLease
	moves    []move // those that settled has not returned
	held     []holding
	// deed is when the fleet was changed last, for example by a kill.
	deed time.Time
}

// slotLease contains what is known of a slot.
type slotLease struct {
	holder   string // a session; "" if there is none
	epoch    int64
	last     string // the last session that held it
	assigned string // a replica
	// assignedAt is when the slot was assigned to that replica; zero when that holds it.
	assignedAt time.Time
}

// move is a slot that moved from one session to another.
type move struct {
	slot     int
	from, to string // replicas
	how      manner
	at       time.Time
	// took is the time since the slot was assigned to the new replica or, when the old session did not
	// release it, since the fleet was changed.
	took time.Duration
}

// manner is how a slot moved.
type manner string

const (
	handedOver manner = "handed over"
	takenOver  manner = "taken over"
	// reacquired is by a new session of the same replica.
	reacquired manner = "taken back"
)

func newJournal() *journal {
	return &journal{sessions: map[string]string{}, slots: map[int]slotLease{}}
}

// see records a version of a Lease.
func (j *journal) see(lease *coordinationv1.Lease, at time.Time) {
	holder := member.Holder(lease)
	if replica, ok := member.ReplicaOfLease(harness.FleetName, lease.Name); ok {
		j.sessions[replica] = holder
		return
	}
	if lease.Name == member.LeaderLeaseName(harness.FleetName) {
		j.leader = holder
		return
	}
	number, ok := member.SlotOfLease(harness.FleetName, lease.Name, slots)
	if !ok {
		return
	}
	before := j.slots[number]
	now := slotLease{
		holder: holder, epoch: member.Transitions(lease), last: before.last,
		assigned: lease.Annotations[v1alpha1.AnnotationAssignedReplica], assignedAt: before.assignedAt,
	}
	if replica := replicaOf(holder); replica != replicaOf(before.holder) {
		j.held = append(j.held, holding{at: at, slot: number, replica: replica})
	}
	if holder != "" {
		if before.last != "" && before.last != holder {
			j.moves = append(j.moves, j.move(number, before, holder, at))
		}
		now.last = holder
	}
	if now.atRest() {
		now.assignedAt = time.Time{}
	} else if now.assignedAt.IsZero() {
		now.assignedAt = at
	}
	j.slots[number] = now
}

func (j *journal) move(number int, before slotLease, holder string, at time.Time) move {
	m := move{slot: number, from: replicaOf(before.last), to: replicaOf(holder), how: takenOver, at: at, took: at.Sub(j.deed)}
	switch {
	case before.holder == "":
		m.how, m.took = handedOver, at.Sub(before.assignedAt)
	case m.from == m.to:
		m.how = reacquired
	}
	return m
}

// atRest reports whether the slot is held by its assigned replica.
func (s slotLease) atRest() bool { return s.holder != "" && replicaOf(s.holder) == s.assigned }

// replicaOf returns the replica of a session; "" for other names.
func replicaOf(session string) string {
	replica, _ := member.ReplicaOf(session)
	return replica
}

// settled returns the moves that it has not returned before, once there was none for some time.
func (j *journal) settled(now time.Time, quiet time.Duration) []move {
	if len(j.moves) == 0 || now.Sub(j.moves[len(j.moves)-1].at) < quiet {
		return nil
	}
	moves := j.moves
	j.moves = nil
	return moves
}
