package state

import (
	"maps"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/plan"
)

// doubt is what the leader holds against a session that renews its Lease: it reported that it is unfit, or it did not take
// slots that it was to take.
type doubt struct {
	// times is how often, one after the other; until is before when the session gets nothing.
	times int
	until member.Moment
	// step is the one in which that was last noted.
	step uint64
	// unfit says that its last report was; idle is since when it does not act.
	unfit bool
	idle  member.Moment
	// tried is when it began to be tried again although its report is unfit; zero: it is not.
	tried member.Moment
	// fit is since when nothing is held against it any more; zero: something is. For some time the next failure counts as one more.
	fit member.Moment
}

// doubtOf returns what is held against a session.
func (r *Replica) doubtOf(session string) *doubt {
	d, known := r.doubts[session]
	if !known {
		d = &doubt{}
		r.doubts[session] = d
	}
	return d
}

// blame notes one more failure, once for all that fails at the same time.
func (r *Replica) blame(now member.Moment, d *doubt) {
	if d.times > 0 && d.fit.IsZero() && !now.Reached(d.until) {
		return
	}
	d.times++
	d.step = r.steps
	d.fit = member.Moment{}
	d.until = now.Add(backOff(r.settings.Plan.PassOverFor, d.times))
}

// forgetDoubts drops what is held against sessions that are gone.
func (r *Replica) forgetDoubts(peers []member.Peer) {
	live := map[string]bool{}
	for _, peer := range peers {
		live[peer.Session] = true
	}
	maps.DeleteFunc(r.doubts, func(session string, _ *doubt) bool { return !live[session] })
}

// possession is what a replica has of the slots: how many are assigned to it, whether its session holds one, and the step in which
// it was last seen to acquire one.
type possession struct {
	assigned int
	holds    bool
	acquired uint64
}

// limit returns what the leader may give a replica of a target cluster's slots.
func (r *Replica) limit(now member.Moment, peer member.Peer, target string, has possession) plan.Limit {
	report := peer.Fitness
	if !report.Acts {
		d := r.doubtOf(peer.Session)
		if d.idle.IsZero() {
			d.idle = now
		}
		// It has just begun, or has just been suspended: what it holds stays for as long as a dead session's would.
		if stuck := d.idle.Add(r.settings.Config.TakeOver); now.Since(stuck) < 0 {
			r.later(stuck)
			return plan.Rest
		}
		return plan.Evict
	}
	service := report.ServiceOf(target)
	if !report.Observes || service == member.Failing {
		d := r.doubtOf(peer.Session)
		if !d.unfit {
			d.unfit = true
			r.blame(now, d)
		}
		d.idle = member.Moment{}
		if report.Observes {
			return r.retry(now, d, has)
		}
		return plan.Evict
	}
	d, known := r.doubts[peer.Session]
	if known {
		d.unfit, d.idle, d.tried = false, member.Moment{}, member.Moment{}
	}
	switch {
	case known && d.times > 0 && d.fit.IsZero() && !now.Reached(d.until):
		r.later(d.until)
		return plan.Rest
	case known && d.times > 0 && d.fit.IsZero() && has.acquired > d.step && service == member.Serving:
		d.fit = now
		return plan.NoLimit
	case known && d.times > 0 && d.fit.IsZero() && has.holds && service == member.Serving:
		return plan.ProbeMore // what it holds it had before: it has not shown that it can take more
	case known && !d.fit.IsZero() && now.Reached(d.fit.Add(r.settings.Plan.HomeFor)):
		delete(r.doubts, peer.Session)
		return plan.NoLimit
	case known && d.times > 0 && d.fit.IsZero(), service == member.Untried:
		return plan.Probe
	}
	return plan.NoLimit
}

// retry returns what a replica may be given that reports that it cannot serve: once its time is over and it has nothing, one
// slot. How else would it find out that it can serve again?
func (r *Replica) retry(now member.Moment, d *doubt, has possession) plan.Limit {
	switch {
	case !now.Reached(d.until):
		r.later(d.until)
		return plan.Evict
	case d.tried.IsZero() && has.assigned > 0:
		return plan.Evict // nobody else could be given it
	case d.tried.IsZero():
		d.tried = now
	}
	if end := d.tried.Add(r.settings.Config.OpenTimeout + r.settings.Config.TakeOver); !now.Reached(end) {
		r.later(end)
		return plan.Retry
	}
	d.tried = member.Moment{}
	r.blame(now, d)
	return plan.Evict
}
