package protocol

import (
	"maps"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// forgetFrom is the number of remembered sessions and replicas below which nothing is forgotten.
const forgetFrom = 256

// forget removes what is known of sessions that no Lease names any more, each time that the number has doubled. A session that is
// named again later is read again: a proof counts only if it was requested after its session was seen on the slot.
func (r *Session) forget(now member.Moment) {
	if r.remembered() < max(r.forgetAt, forgetFrom) {
		return
	}
	sessions, replicas := map[string]bool{}, map[string]bool{}
	name := func(session string) {
		replica, _ := member.ReplicaOf(session)
		sessions[session], replicas[replica] = true, true
	}
	for _, s := range r.slots {
		name(s.holder)
		for _, session := range s.quarantine {
			name(session)
		}
	}
	maps.DeleteFunc(r.proofs, func(session string, p *proof) bool { return !p.pending && !sessions[session] })
	r.others.Forget(now, func(replica string) bool { return replicas[replica] })
	maps.DeleteFunc(r.words, func(replica string, _ *words) bool { return r.others.Peer(replica).Replica == "" })
	maps.DeleteFunc(r.deaths, func(replica string, d *death) bool { return !d.pending && r.others.Peer(replica).Session == "" })
	r.forgetAt = 2 * r.remembered()
}

// remembered returns the number of sessions and replicas of which something is remembered.
func (r *Session) remembered() int { return len(r.proofs) + r.others.Known() }
