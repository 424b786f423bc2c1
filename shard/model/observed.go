package model

import (
	"fmt"
	"slices"
	"strings"
)

// The rules of the observed variant, each left out.
const (
	blindHolderActs    mutation = "a renewal counts for the fence before the watch has shown it"
	slotWatchedApart   mutation = "slot Leases and session Leases have separate watches"
	newSlotAtOnce      mutation = "a new slot Lease can be acquired at once"
	cleanSlotAtOnce    mutation = "a slot Lease created after an orderly deletion can be acquired at once"
	missingIsDead      mutation = "a missing session Lease proves death at once, in the watch"
	otherUIDIsDead     mutation = "another holder proves death whatever the session Lease's UID"
	exitsLate          mutation = "what is in flight of a lost slot may continue for 15 s"
	restoredNameCounts mutation = "a restored slot Lease that names a session makes it the holder"
	restoredTooEarly   mutation = "etcd is restored in less time than the fence"
	finalizedWhileHeld mutation = "the finalizer is removed while the slot is held"
)

// observed is the fleet under other rules, as a system to explore. A session's fence counts only from renewals that its watch has
// shown to it, and one watch shows session Leases and slot Leases in the order of their changes. So a session that may act has
// observed everything up to one fence ago, and one wait replaces what the product's rules require for Leases that were deleted:
// the annotation of a created session Lease, live reads as proofs, the list of a quarantine and its confirmations.
type observed struct {
	name       string
	replicas   []uint8
	steady     uint8 // a set of sessions whose renewals succeed at once; they still have to observe them
	passive    uint8 // a set of sessions that do not want the slot
	held, once bool
	finalizers bool // deletions by a user set the deletionTimestamp; without finalizers they remove
	inFlight   bool // what is in flight is modelled
	attempts   int
	faults     harm
	mutation   mutation
}

// harm are budgets of faults.
type harm struct {
	crashes, sleeps, drifts, leaves, twins uint8
	sessionDeletions, slotDeletions        uint8 // by a user, as kubectl delete does
	forced                                 uint8 // removals in spite of a finalizer
	drops, repetitions, restores           uint8
}

const slotAt = maxReplicas // the place of the slot Lease beside the session Leases

// stored is a Lease at the API server.
type stored struct {
	uid       uint8 // 0: there is none
	holder    uint8
	holderUID uint8 // slot Lease: the UID of the session Lease under which its holder has acquired it
	age       uint8 // session Lease: ticks since the send of its last update; up to fence
	deleting  bool
	acquired  bool // slot Lease: it was acquired since it was created
}

// scene is a state of the observed variant.
type scene struct {
	leases       [maxReplicas + 1]stored
	last         [maxReplicas + 1]uint8 // the last UID that was assigned
	saved        [maxReplicas + 1]stored
	snapshot     bool
	savedVersion uint8 // a set of Leases that still have the version of the snapshot
	sessions     [maxSessions]watcher
	wire         [maxWire]order
	remaining    harm
}

// watcher is a session and what it knows. All of its view was current at one moment.
type watcher struct {
	phase     phase
	asleep    bool
	sent      bool
	fresh     bool  // knows the current version of its session Lease
	ahead     bool  // knows of a renewal of its own that is newer than the snapshot
	knewSaved bool  // has known the version of its session Lease when the snapshot was taken
	uid       uint8 // of the session Lease that it holds
	fence     uint8
	view      [maxReplicas + 1]glimpse
	quiet     [maxReplicas]uint8
	orphaned  uint8 // ticks since the slot's holder was observed without the session Lease under which it has acquired; 0: it was not
	new       uint8 // ticks since a slot Lease that was never acquired was first seen; 0: it is not
	released  bool
	later     bool // has acquired the slot after the snapshot
	disowns   bool // is named by a slot Lease that it has not acquired
	busy      bool
	lost      uint8 // ticks since the slot was lost with something in flight; 0: it was not
}

// glimpse is a Lease as it was observed.
type glimpse struct {
	uid, holder, holderUID uint8
	deleting, acquired     bool
	current                bool // it is still this version
	saved                  bool // it is the version in the snapshot
}

// order is a request on the wire. One that names an old version is removed.
type order struct {
	verb  verb
	from  uint8
	on    uint8
	age   uint8
	clean bool
}

func (o order) rank() int {
	rank := int(o.verb)<<24 | int(o.from)<<16 | int(o.on)<<8 | int(o.age)<<1
	if o.clean {
		rank |= 1
	}
	return rank
}

func (s *scene) session(who uint8) *watcher { return &s.sessions[who-1] }

func (s *scene) send(o order) bool {
	i := slices.IndexFunc(s.wire[:], func(o order) bool { return o.verb == nothing })
	if i < 0 {
		return false
	}
	s.wire[i] = o
	s.sortWire()
	return true
}

func (s *scene) sortWire() {
	slices.SortFunc(s.wire[:], func(a, b order) int { return b.rank() - a.rank() })
}

func (s *scene) onWire(v verb, from, on uint8) (n int) {
	for _, o := range s.wire {
		if o.verb == v && o.from == from && o.on == on {
			n++
		}
	}
	return n
}

// holds reports whether a session holds the slot, as far as it has observed: by a write of its own, under its session Lease.
func (w *watcher) holds(who uint8) bool {
	slot := w.view[slotAt]
	return w.phase == living && slot.uid != 0 && slot.holder == who && slot.holderUID == w.uid && !w.disowns
}

// entitled reports whether a session may start something for the slot.
func (s *scene) entitled(who uint8) bool {
	w := s.session(who)
	return w.holds(who) && !w.asleep && w.fence > 0 && !w.released
}

func (f observed) replica(who uint8) uint8 { return f.replicas[who-1] }
func (f observed) isSteady(who uint8) bool { return has(f.steady, who) }

// inWorld reports whether a replica's session Lease is modelled. Those of steady sessions are not.
func (f observed) inWorld(replica uint8) bool {
	i := slices.Index(f.replicas, replica)
	return i >= 0 && !f.isSteady(uint8(i+1))
}

// steadyUID is the UID of the session Leases of steady sessions.
const steadyUID = 1

func (f observed) start() scene {
	s := scene{remaining: f.faults}
	s.leases[slotAt], s.last[slotAt] = stored{uid: 1, acquired: true}, 1
	for i, r := range f.replicas {
		if f.isSteady(uint8(i + 1)) {
			s.sessions[i] = watcher{phase: living, uid: steadyUID, fresh: true}
			continue
		}
		s.leases[r], s.last[r] = stored{uid: 1, age: fence}, 1
	}
	if f.held {
		s.leases[f.replicas[0]].holder, s.leases[f.replicas[0]].age = 1, 0
		s.leases[slotAt].holder, s.leases[slotAt].holderUID = 1, 1
		s.sessions[0] = watcher{phase: living, uid: 1}
	}
	for i := range f.replicas {
		if s.sessions[i].phase == living {
			f.observe(&s, uint8(i+1))
		}
	}
	return s
}

func (f observed) broken(s scene) string {
	for a := range uint8(len(f.replicas)) {
		for b := range uint8(len(f.replicas)) {
			switch one, other := a+1, b+1; {
			case a == b || !s.entitled(other):
			case a < b && s.entitled(one):
				return fmt.Sprintf("sessions %s and %s are entitled at once", f.called(one), f.called(other))
			case s.session(one).busy:
				return fmt.Sprintf("session %s is entitled while something of %s is in flight", f.called(other), f.called(one))
			}
		}
	}
	return ""
}

func (f observed) good(s scene) bool {
	h := s.leases[slotAt].holder
	return h != 0 && s.entitled(h)
}

func (f observed) called(who uint8) string { return fleet{replicas: f.replicas}.called(who) }

func (f observed) describe(s scene) string {
	var b strings.Builder
	for i := range f.replicas {
		w := s.sessions[i]
		fmt.Fprintf(&b, "%s: %s, fence in %d, observed holder of the slot: %s; ", f.called(uint8(i+1)),
			[]string{"not started", "starting", "living", "gone"}[w.phase], w.fence, f.called(w.view[slotAt].holder))
	}
	fmt.Fprintf(&b, "the slot Lease names %s", f.called(s.leases[slotAt].holder))
	return b.String()
}
