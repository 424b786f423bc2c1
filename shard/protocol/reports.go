package protocol

// Reports is what the fleet reports about the machines in its slots.
type Reports struct {
	// Counts is the last report of each replica, by its name, also of replicas that are absent now.
	Counts map[string]string
	// Holders are the replicas that hold the slots, dead or alive; "" if there is none.
	Holders []string
}

// Reports returns the reports of all replicas. ok is false until the session has held its Lease: before that it has not read all
// Leases.
func (r *Session) Reports() (reported Reports, ok bool) {
	reported = Reports{Counts: map[string]string{}, Holders: make([]string, 0, len(r.slots))}
	for _, peer := range r.others.Peers() {
		if peer.Counts != "" {
			reported.Counts[peer.Replica] = peer.Counts
		}
	}
	for _, s := range r.slots {
		reported.Holders = append(reported.Holders, s.replica)
	}
	return reported, !r.Suspended()
}
