package session

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// longUnfit is for how long a session may report that it cannot do its work before the leader
// reports it: a session that has just begun, or was suspended, needs some time.
const longUnfit = 10 * time.Second

// pending is the reason of slots whose objects have not been requested yet.
const pending = "Pending"

// waiting returns the slots that are held and not open, with the kind of objects that is missing.
func (r *Replica) waiting() map[int]string {
	slots := map[int]string{}
	unlisted := r.cfg.Grants.Unlisted()
	for slot, o := range r.opening {
		if o.ready {
			continue
		}
		if slots[slot] = unlisted[slot]; slots[slot] == "" {
			slots[slot] = pending
		}
	}
	return slots
}

// unopened counts these slots by the kind of objects that is missing.
func (r *Replica) unopened() map[string]int {
	counts := map[string]int{}
	for _, reason := range r.waiting() {
		counts[reason]++
	}
	return counts
}

// report reports, if this session leads, slots without a holder, and replicas that cannot do their
// work or do not reach an account at a cloud that others reach.
func (r *Replica) report(ctx context.Context, now member.Moment, facts *protocol.Facts) {
	reportLate(ctx, r, r.outages, now, longUnowned, unownedAmong(facts.Slots), r.reportUnowned)
	troubles := troublesOf(facts.Sessions)
	reportLate(ctx, r, r.unfit, now, longUnfit, troubles, func(ctx context.Context, late []string) (reported bool) {
		var about []Trouble
		for _, key := range late {
			about = append(about, troubles[key])
			t := troubles[key]
			klog.FromContext(ctx).Error(nil, "Replica does not serve all of its slots", "reason", t.Event, "message", t.Message, "unfit", t.Replica)
		}
		err := r.cfg.Unfit(ctx, about)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to report unfit replicas; retrying")
		}
		return err == nil
	})
}

// Trouble is a reason for which a replica that renews its session Lease does not serve all of its
// slots.
type Trouble struct {
	Replica string
	// Event is the reason of the Event that reports it, and Message its text: the cause and the next
	// step.
	Event, Message string
}

// troublesOf returns what is to be reported of sessions, each under a key that stays the same while
// it lasts.
func troublesOf(sessions []protocol.SessionFacts) map[string]Trouble {
	all := map[string]Trouble{}
	add := func(s protocol.SessionFacts, event, about, message string) {
		all[s.Session+" "+event+" "+about] = Trouble{Replica: s.Replica, Event: event, Message: message}
	}
	for _, s := range sessions {
		if s.Session == "" {
			continue
		}
		if !s.Fitness.IsFit() {
			add(s, v1alpha1.EventReplicaUnfit, "", "Replica "+s.Replica+" renews its Lease and cannot do its work: "+s.Fitness.Reason+
				"; its slots are assigned to replicas that can; check its log and its connections to both clusters")
		}
		for _, class := range s.Unreached { // each on its own: the owner of one decides how long it fails
			add(s, v1alpha1.EventAccountUnreached, class, "Replica "+s.Replica+" gets no answer from the cloud or the driver of MachineClass "+
				class+", and other replicas do; the slots of its machines are assigned to these; "+
				"check the processes of drivers in its pod, and its connections to the cloud")
		}
	}
	return all
}

// compareAccounts reports changes of what this replica has found out about accounts at clouds.
func (r *Replica) compareAccounts() {
	accounts := r.cfg.Accounts()
	if text := accounts.String(); text != r.reached {
		r.reached = text
		r.post(protocol.Compared{Accounts: accounts})
	}
}
