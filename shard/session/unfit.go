package session

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// longUnfit is for how long a session may report that it cannot do its work before the leader reports it: a session that has
// just begun, or was suspended, needs some time.
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

// report reports, if this session leads, slots without a holder and unfit replicas.
func (r *Replica) report(ctx context.Context, now member.Moment, facts *protocol.Facts) {
	r.reportUnowned(ctx, now, facts.Slots)
	r.reportUnfit(ctx, now, facts.Sessions)
}

// reportUnfit reports, under the leadership, sessions that cannot do their work, or do not reach an account at a cloud that others reach.
func (r *Replica) reportUnfit(ctx context.Context, now member.Moment, sessions []protocol.SessionFacts) {
	if r.cfg.Unfit == nil {
		return
	}
	owned, done, leads := r.cfg.Fence.Lead(ctx)
	if !leads {
		clear(r.ailing)
		return
	}
	unfit := unfitOf(sessions)
	late := lateOf(r.ailing, now, longUnfit, unfit)
	if len(late) == 0 {
		done()
		return
	}
	var about []protocol.SessionFacts
	for _, key := range late {
		about = append(about, unfit[key])
	}
	r.sent.Go(func() {
		defer done()
		for _, s := range about {
			klog.FromContext(owned).Info("Replica is unfit", "session", s.Session, "reason", s.Fitness.Reason, "unreached", s.Unreached)
		}
		if err := r.cfg.Unfit(owned, about); err != nil {
			klog.FromContext(owned).Error(err, "Failed to report unfit replicas; retrying")
			r.mail.put(letter{do: func() { r.ailing.unreported(late) }})
		}
	})
}

// unfitOf returns the sessions to report. One that does not reach an account has a key of its own for that, so that it is reported when it becomes
// unfit, too: the owner of an account can make it fail for as long as he likes.
func unfitOf(sessions []protocol.SessionFacts) map[string]protocol.SessionFacts {
	unfit := map[string]protocol.SessionFacts{}
	for _, s := range sessions {
		if s.Session != "" && !s.Fitness.IsFit() {
			unfit[s.Session] = s
		}
		if s.Session != "" && len(s.Unreached) > 0 {
			unfit[s.Session+" accounts"] = s
		}
	}
	return unfit
}

// compareAccounts reports changes of what this replica has found out about accounts at clouds.
func (r *Replica) compareAccounts() {
	if r.cfg.Accounts == nil {
		return
	}
	accounts := r.cfg.Accounts()
	if text := accounts.String(); text != r.reached {
		r.reached = text
		r.post(protocol.Compared{Accounts: accounts})
	}
}
