package model

import (
	"fmt"
	"slices"
	"strings"
)

// mutation leaves out one rule. The checker must then find what the rule prevents.
type mutation string

const (
	none                      mutation = ""
	fenceFromAnswer           mutation = "the fence is counted from the response"
	fenceOnMonotonicClock     mutation = "the fence is counted on the monotonic clock only"
	takeOverEarly             mutation = "take-over leaves nothing for the drift of clocks"
	takeOverWithoutCompare    mutation = "take-over skips the compare and swap"
	deathFromCache            mutation = "a holder is judged dead from a cached session Lease"
	createdProvesDeath        mutation = "a created session Lease counts as proof of death"
	annotationGoesWithSession mutation = "the annotation of a created session Lease is removed when the next session acquires it"
	absenceProvesDeath        mutation = "a missing session Lease proves death at once"
	absenceTimedByWatch       mutation = "a missing session Lease is timed by a watch, which may lag"
	quarantineListsFromCache  mutation = "a quarantine lists from a cache"
	quarantineTimedFromLease  mutation = "a quarantine is timed from the Lease, not from its list"
	quarantineDoesNotWait     mutation = "a quarantine waits only for the sessions on its list"
	updateWithoutUID          mutation = "a Lease is updated without its UID"
	releaseForgotten          mutation = "a release is forgotten when its answer is lost"
	readRestartsTimer         mutation = "a live read that shows nothing new restarts the timer"
	noComeBack                mutation = "the come-back rule is dropped"
	failureIsNoGap            mutation = "a renewal that fails does not restart the timers"
)

// fleet is the model of sessions that share one slot, as a system to explore.
type fleet struct {
	name     string
	replicas []uint8 // of each session; one replica may have several
	steady   uint8   // a set of sessions that have no faults: they never need to renew
	held     bool    // the first session holds the slot at the beginning
	passive  uint8   // a set of sessions that do not want the slot
	once     bool    // a session that is gone is not followed by another
	prompt   bool    // what is due happens before time passes
	plan     bool    // the leader assigns the slot to one replica, and holders hand over
	attempts int     // renewals of a session on the wire at a time; further ones are lost
	answers  bool    // the answers to renewals are on the wire too; a read stands for an answer otherwise
	faults   faults
	mutation mutation
}

func (f fleet) sessions() int           { return len(f.replicas) }
func (f fleet) isSteady(who uint8) bool { return has(f.steady, who) }
func (f fleet) replica(who uint8) uint8 { return f.replicas[who-1] }

// watches reports whether a session follows the session Lease of a replica: those of others, and
// its own until it holds it.
func (f fleet) watches(w *world, who, replica uint8) bool {
	first := slices.Index(f.replicas, replica)
	return first >= 0 && !f.isSteady(uint8(first+1)) && (f.replica(who) != replica || w.session(who).phase == starting)
}

// start returns a world in which no Lease has a holder. Only steady sessions run.
func (f fleet) start() world {
	w := world{remaining: f.faults, slot: slotLease{exists: true}}
	if f.plan {
		w.slot.assigned = 1
	}
	for i, r := range f.replicas {
		w.leases[r] = sessionLease{exists: true, age: fence}
		if f.isSteady(uint8(i + 1)) {
			w.leases[r] = sessionLease{}
			w.sessions[i] = session{phase: living, fence: fence, fresh: true}
		}
	}
	if f.held {
		w.leases[f.replicas[0]] = sessionLease{exists: true, holder: 1}
		w.slot.holder = 1
		view := slotView{exists: true, holder: 1, assigned: w.slot.assigned, fresh: true, known: true}
		w.sessions[0] = session{phase: living, fence: fence, fresh: true, slot: view}
	}
	return w
}

// broken returns the promise that a world breaks; "" if it breaks none.
func (f fleet) broken(w world) string {
	if f.prompt && w.killed {
		return "a living session was declared dead because the API server was unavailable"
	}
	for a := uint8(1); a <= uint8(f.sessions()); a++ {
		for b := uint8(1); b <= uint8(f.sessions()); b++ {
			switch {
			case a == b || !w.entitled(b):
			case a < b && w.entitled(a):
				return fmt.Sprintf("sessions %s and %s are entitled at once", f.called(a), f.called(b))
			case f.plan && w.session(a).busy && w.session(a).fence > 0:
				return fmt.Sprintf("session %s is entitled while something of %s is in flight", f.called(b), f.called(a))
			}
		}
	}
	return ""
}

// good reports whether a session holds the slot, knows it, may act, and is the one that should hold
// it.
func (f fleet) good(w world) bool {
	h := w.slot.holder
	return h != 0 && w.entitled(h) && (w.slot.assigned == 0 || w.slot.assigned == 1+f.replica(h))
}

// called returns a session's name in a story: its replica's letter and a number.
func (f fleet) called(who uint8) string {
	const names = "a1a2a3a4b1b2b3b4c1c2c3c4"
	if who == 0 {
		return "none"
	}
	number := 0
	for i := range who - 1 {
		if f.replicas[i] == f.replica(who) {
			number++
		}
	}
	at := 8*int(f.replica(who)) + 2*number
	return names[at : at+2]
}

func replicaName(replica uint8) string { return "ABC"[replica : replica+1] }

func (f fleet) describe(w world) string {
	var b strings.Builder
	for i := range f.sessions() {
		who := uint8(i + 1)
		s := w.session(who)
		fmt.Fprintf(&b, "%s: %s, fence in %d, observed holder of the slot: %s; ", f.called(who),
			[]string{"not started", "starting", "living", "gone"}[s.phase], s.fence, f.called(s.slot.holder))
	}
	fmt.Fprintf(&b, "the slot Lease names %s", f.called(w.slot.holder))
	return b.String()
}
