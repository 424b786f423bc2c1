package protocol

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// checkRestore requests a live list if the list that the watch starts from is older than what we know. Usually it began before an
// answer that came first; but if etcd has been restored, everything that the watch shows is old for a while, and only a live read
// that began later proves that it is current.
func (r *Session) checkRestore(leases []*coordinationv1.Lease) {
	for _, l := range leases {
		number, ok := member.SlotOfLease(r.settings.Fleet, l.Name, r.settings.Slots)
		if ok && r.slots[number].lease != nil && member.IsOlder(l, r.slots[number].lease) && !r.restoring {
			r.restoring = true
			r.send(member.Request{Verb: member.List, Need: member.NeedNothing}, question{about: aboutRestore})
		}
	}
}

// handleRestore applies that list. Without an answer the next list of the watch is checked again.
func (r *Session) handleRestore(now member.Moment, q question, reply member.Reply) {
	r.restoring = false
	if reply.Outcome == member.Done {
		r.observeList(now, reply.Leases, q.step)
	}
}
