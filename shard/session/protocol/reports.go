package protocol

import member "github.com/machine-controller-fleet/machine-controller-fleet/membership"

// Reports contains what the fleet reports about the machines in its slots.
type Reports struct {
	// Counts is the last report of each replica, by its name, also of replicas that are absent now.
	Counts map[string]string
	// Accounts are the reports of the sessions of other replicas about accounts at clouds.
	Accounts []member.Accounts
	// Holders are the replicas that hold the slots, dead or alive; "" if there is none.
	Holders []string
}

// Reports returns the reports of all replicas. ok is false until the session has held its Lease:
// before that it has not read all Leases.
func (r *Session) Reports() (reported Reports, ok bool) {
	reported = Reports{Counts: map[string]string{}, Holders: make([]string, 0, len(r.slots))}
	for _, peer := range r.others.Peers() {
		if counts := r.table.countsOf(peer); counts != "" {
			reported.Counts[peer.Replica] = counts
		}
		if accounts := r.table.accountsOf(peer); peer.Session != r.settings.Session && !accounts.IsEmpty() {
			reported.Accounts = append(reported.Accounts, accounts)
		}
	}
	for _, s := range r.slots {
		reported.Holders = append(reported.Holders, s.replica)
	}
	return reported, !r.Suspended()
}
