package protocol

import (
	"maps"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// doubt is what the leader holds against a session that renews its Lease: it reported that it is unfit, or it did not take
// slots that it was to take. The zero doubt is that of a session against which nothing is held.
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
func (r *Session) doubtOf(session string) *doubt {
	d, known := r.doubts[session]
	if !known {
		d = &doubt{}
		r.doubts[session] = d
	}
	return d
}

// isHeld reports whether something is held against the session.
func (d *doubt) isHeld() bool { return d.times > 0 && d.fit.IsZero() }

// blame notes one more failure in a step, once for all that fails at the same time.
func (d *doubt) blame(s Settings, now member.Moment, step uint64) {
	if !now.Reached(d.until) {
		return
	}
	if !d.fit.IsZero() && now.Reached(d.fit.Add(s.Assignment.HomeFor)) {
		d.times = 0
	}
	d.times++
	d.step, d.fit, d.tried = step, member.Moment{}, member.Moment{}
	d.until = now.Add(backOff(s.Assignment.PassOverFor, d.times))
}

// forgetDoubts drops what is held against sessions that are gone.
func (r *Session) forgetDoubts(peers []member.Peer) {
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

// limit returns what the leader may give a replica of a target cluster's slots, by what its session reports and by what it has.
// again is when that may change by itself; zero: it does not.
func (d *doubt) limit(s Settings, now member.Moment, step uint64, report member.Fitness, target string, has possession) (
	limit assignment.Limit, again member.Moment,
) {
	if !report.Acts {
		return d.suspended(s, now)
	}
	d.idle = member.Moment{}
	service := report.ServiceOf(target)
	isUnfit := !report.Observes || service == member.Failing
	if isUnfit && !d.unfit {
		d.blame(s, now, step)
	}
	d.unfit = isUnfit
	switch {
	case !report.Observes:
		return assignment.Evict, member.Moment{}
	case isUnfit:
		return d.retry(s, now, step, has)
	}
	switch {
	case !d.isHeld() && service == member.Untried:
		return assignment.Probe, member.Moment{}
	case !d.isHeld():
		return assignment.NoLimit, member.Moment{}
	case !now.Reached(d.until):
		return assignment.Rest, d.until
	case service == member.Untried:
		return assignment.Probe, member.Moment{}
	case has.acquired > d.step:
		d.fit = now
		return assignment.NoLimit, member.Moment{}
	case has.holds:
		return assignment.ProbeMore, member.Moment{} // what it holds it had before: it has not shown that it can take more
	}
	return assignment.Probe, member.Moment{}
}

// suspended returns what a replica may be given that does not act. It has just begun, or has just been suspended: what it holds
// stays for as long as a dead session's would.
func (d *doubt) suspended(s Settings, now member.Moment) (limit assignment.Limit, again member.Moment) {
	if d.idle.IsZero() {
		d.idle = now
	}
	if end := d.idle.Add(s.Config.TakeOver); now.Since(end) < 0 {
		return assignment.Rest, end
	}
	return assignment.Evict, member.Moment{}
}

// retry returns what a replica may be given that reports that it cannot serve: once its time is over and it has nothing, one
// slot. How else would it find out that it can serve again?
func (d *doubt) retry(s Settings, now member.Moment, step uint64, has possession) (limit assignment.Limit, again member.Moment) {
	patience := s.Config.OpenTimeout + s.Config.TakeOver
	if !d.tried.IsZero() && now.Reached(d.tried.Add(patience)) {
		d.blame(s, now, step)
	}
	switch {
	case !now.Reached(d.until):
		return assignment.Evict, d.until
	case d.tried.IsZero() && has.assigned > 0:
		return assignment.Evict, member.Moment{} // nobody else could be given it
	case d.tried.IsZero():
		d.tried = now
	}
	return assignment.Retry, d.tried.Add(patience)
}
