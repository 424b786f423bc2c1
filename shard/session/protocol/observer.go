package protocol

import (
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// forgetFrom is the number of remembered sessions and replicas below which nothing is forgotten.
const forgetFrom = 256

// observer applies what the watch and live reads of Leases show.
type observer struct {
	*shared

	activation *activation
	table      *table
	proofs     *proofs
	holder     *holder
	leader     *leader
	// restoring is true while a list is requested because etcd may have been restored.
	restoring bool
	// forgetAt is the number of remembered sessions and replicas from which on forget removes what is
	// not needed.
	forgetAt int
}

// forget removes what is known of sessions that no Lease names any more, each time that the number
// has doubled. A session that is named again later is read again: a proof counts only if it was
// requested after its session was seen on the slot.
func (ob *observer) forget(now member.Moment) {
	if ob.remembered() < max(ob.forgetAt, forgetFrom) {
		return
	}
	sessions, replicas := map[string]bool{}, map[string]bool{}
	name := func(session string) {
		replica, _ := member.ReplicaOf(session)
		sessions[session], replicas[replica] = true, true
	}
	for _, s := range ob.slots {
		name(s.holder)
		for _, session := range s.quarantine {
			name(session)
		}
	}
	maps.DeleteFunc(ob.proofs.sessions, func(session string, p *proof) bool { return !p.pending && !sessions[session] })
	ob.others.Forget(now, func(replica string) bool { return replicas[replica] })
	maps.DeleteFunc(ob.table.sessions, func(replica string, _ *sessionContent) bool { return ob.others.Peer(replica).Replica == "" })
	maps.DeleteFunc(ob.table.reports, func(replica string, _ report) bool { return ob.others.Peer(replica).Replica == "" })
	maps.DeleteFunc(ob.leader.deaths, func(replica string, d *death) bool { return !d.pending && ob.others.Peer(replica).Session == "" })
	ob.forgetAt = 2 * ob.remembered()
}

// remembered returns the number of sessions and replicas of which something is remembered.
func (ob *observer) remembered() int {
	return len(ob.proofs.sessions) + ob.others.Known() + len(ob.table.reports)
}

// observeList applies a consistent list: the watch's, or, with the step in which it was requested,
// ours. What is not in it does not exist.
func (ob *observer) observeList(now member.Moment, leases []*coordinationv1.Lease, requestedAt uint64) {
	there := make(map[string]bool, len(leases))
	for _, l := range leases {
		there[l.Name] = true
		ob.observeLease(now, l, requestedAt)
	}
	for _, s := range ob.slots {
		if s.lease != nil && !there[s.name] {
			ob.holder.observeSlot(now, s, nil, requestedAt)
		}
	}
	for _, p := range ob.others.Peers() {
		if !there[member.SessionLeaseName(ob.settings.Fleet, p.Replica)] {
			ob.others.Missed(now, p.Replica)
		}
	}
	maps.DeleteFunc(ob.table.reports, func(replica string, _ report) bool {
		return requestedAt == 0 && !there[member.ReportLeaseName(ob.settings.Fleet, replica)]
	})
	ob.dirty = true
}

// observeLease applies a version of any Lease of the fleet. The renewal of a session Lease, by far
// the most frequent event, is not examined any further.
func (ob *observer) observeLease(now member.Moment, l *coordinationv1.Lease, requestedAt uint64) {
	if number, ok := member.SlotOfLease(ob.settings.Fleet, l.Name, ob.settings.Slots); ok {
		ob.holder.observeSlot(now, ob.slots[number], l, requestedAt)
		return
	}
	if replica, ok := member.ReplicaOfReport(ob.settings.Fleet, l.Name); ok {
		known := ob.table.reportOf(replica).lease
		if requestedAt == 0 || known == nil || !member.IsOlder(l, known) {
			ob.table.observeReport(replica, l)
		}
		return
	}
	if !ob.activation.acted {
		if err := CheckLease(ob.settings, l); err != nil {
			ob.exit(Exit{Reason: ReasonMismatch, Message: err.Error()})
			return
		}
	}
	if l.Name == member.LeaderLeaseName(ob.settings.Fleet) {
		return
	}
	if requestedAt == 0 {
		ob.dirty = ob.others.Observe(now, l, true) || ob.dirty
	} else {
		ob.dirty = ob.others.Correct(now, l) || ob.dirty
	}
}

// observeDeletion records that a Lease was deleted.
func (ob *observer) observeDeletion(now member.Moment, l *coordinationv1.Lease) {
	if number, ok := member.SlotOfLease(ob.settings.Fleet, l.Name, ob.settings.Slots); ok {
		if s := ob.slots[number]; s.lease != nil && s.lease.UID == l.UID {
			ob.holder.observeSlot(now, s, nil, 0)
		}
		return
	}
	if replica, ok := member.ReplicaOfReport(ob.settings.Fleet, l.Name); ok {
		ob.table.observeReport(replica, nil)
		return
	}
	if replica, ok := member.ReplicaOfLease(ob.settings.Fleet, l.Name); ok && ob.others.Missed(now, replica) {
		ob.dirty = true
	}
}

// checkRestore requests a live list if the list that the watch starts from is older than what we
// know. Usually it began before an answer that came first; but if etcd has been restored,
// everything that the watch shows is old for a while, and only a live read that began later proves
// that it is current.
func (ob *observer) checkRestore(leases []*coordinationv1.Lease) {
	for _, l := range leases {
		number, ok := member.SlotOfLease(ob.settings.Fleet, l.Name, ob.settings.Slots)
		if ok && ob.slots[number].lease != nil && member.IsOlder(l, ob.slots[number].lease) && !ob.restoring {
			ob.restoring = true
			ob.send(member.Request{Verb: member.List, Need: member.NeedNothing}, question{about: aboutRestore})
		}
	}
}

// handleRestore applies that list. Without an answer the next list of the watch is checked again.
func (ob *observer) handleRestore(now member.Moment, q question, reply member.Reply) {
	ob.restoring = false
	if reply.Outcome == member.Done {
		ob.observeList(now, reply.Leases, q.step)
	}
}
