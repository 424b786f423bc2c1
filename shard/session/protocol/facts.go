package protocol

import (
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// Facts contains what a session knows, for operators and metrics.
type Facts struct {
	Session string `json:"session"`
	// Fence is the moment after which nothing may be started; zero: nothing may be now.
	Fence     member.Moment `json:"fence"`
	Suspended bool          `json:"suspended"`
	Leaving   bool          `json:"leaving"`
	// Observing is true if our own renewals are visible in the watch, so that the silence of other
	// sessions counts.
	Observing bool `json:"observing"`
	// Fitness is the report of what the session can do.
	Fitness  member.Fitness `json:"fitness"`
	Sessions []SessionFacts `json:"sessions"`
	Slots    []SlotFacts    `json:"slots"`
	// Outstanding counts the requests that are not answered yet.
	Outstanding int  `json:"outstanding"`
	Leads       bool `json:"leads"`
	// Assigned is the leader's last assignment.
	Assigned assignment.Verdict `json:"planned"`
}

// SessionFacts contains what is known of a replica's session Lease.
type SessionFacts struct {
	Replica string `json:"replica"`
	// Session is the holder; "" if there is none.
	Session  string  `json:"session"`
	Leaving  bool    `json:"leaving,omitempty"`
	Capacity float64 `json:"capacity"`
	// Silence is for how long nothing was observed of it while it would have been.
	Silence time.Duration `json:"silence"`
	// Fitness is its report of what it can do.
	Fitness member.Fitness `json:"fitness"`
	// Unreached are classes of accounts at clouds that do not answer it, and answer another replica.
	Unreached []string `json:"unreached,omitempty"`
}

// SlotFacts contains what is known of a slot.
type SlotFacts struct {
	Slot     int    `json:"slot"`
	Holder   string `json:"holder,omitempty"`
	Epoch    int64  `json:"epoch"`
	Assigned string `json:"preferred,omitempty"`
	Home     string `json:"home,omitempty"`
	// Weight is the weight that the leader uses, as far as this replica knows it.
	Weight int64 `json:"weight"`
	// Quarantine are the sessions that have to confirm before the slot can be acquired.
	Quarantine []string `json:"quarantine,omitempty"`
	// Phase is the phase of the slot in this session: free, held, stopping, cancelled or releasing.
	Phase string `json:"phase"`
	// Busy is true if something of the slot may be in flight in this process.
	Busy bool `json:"busy,omitempty"`
	// Owned is true if the holder's session lives, as far as this session has observed.
	Owned bool `json:"owned"`
	// NotBefore is the time before which this session does not acquire the slot again, because it did
	// not open.
	NotBefore member.Moment `json:"notBefore,omitzero"`
	// Missing is true if there is no slot Lease.
	Missing bool `json:"missing,omitempty"`
}

// Facts returns all that the session knows.
func (r *Session) Facts(now member.Moment) Facts {
	_, observing := r.others.Observing()
	f := Facts{
		Session: r.settings.Session, Fence: r.Fence(), Suspended: r.Suspended(), Leaving: r.isLeaving(),
		Observing: observing, Fitness: r.ability.report, Outstanding: len(r.pending), Leads: r.leader.leads, Assigned: r.leader.assigner.last,
	}
	peers := r.others.Peers()
	unreached := r.table.unreached(peers)
	for _, p := range peers {
		silence, _ := r.others.Silence(now, p.Replica)
		f.Sessions = append(f.Sessions, SessionFacts{
			Replica: p.Replica, Session: p.Session, Leaving: p.Leaving, Capacity: p.Capacity, Silence: silence, Fitness: p.Fitness,
			Unreached: unreached[p.Replica],
		})
	}
	for _, s := range r.slots {
		f.Slots = append(f.Slots, SlotFacts{
			Slot: s.number, Holder: s.holder, Epoch: member.Transitions(s.lease), Assigned: s.assigned, Home: s.home,
			Weight: r.table.weighs(s), Quarantine: s.quarantine, Phase: s.phase.String(), Busy: s.busy, Owned: r.table.owner(s) != "",
			Missing:   s.lease == nil,
			NotBefore: s.closedUntil,
		})
	}
	return f
}
