package protocol

// Reports is what the fleet says of the machines in its slots.
type Reports struct {
	// Counts is what each replica has said last, by its name, also when it is absent by now.
	Counts map[string]string
	// Holders are the replicas that hold the slots, dead or alive; "" is nobody.
	Holders []string
}

// Reports returns what is known of that. ok is false until the session has held its Lease: before that it has not read all.
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
