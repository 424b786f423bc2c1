package protocol

import (
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// doubt is the leader's record of the failures of a session that renews its Lease: the session
// reported that it is unfit, or it did not acquire slots that were assigned to it. The zero doubt
// is that of a session without failures.
type doubt struct {
	// times is the number of consecutive failures; until is the time before which nothing is assigned
	// to the session.
	times int
	until member.Moment
	// step is the one in which the last failure was recorded.
	step uint64
	// unfit is true if its last report was that of an unfit session; idle is since when it has not
	// acted.
	unfit bool
	idle  member.Moment
	// keeps is the time before which it keeps the slots that it has although it reports that it cannot
	// serve.
	keeps member.Moment
	// tried is when a slot was assigned again although the session reports that it is unfit; zero:
	// none was.
	tried member.Moment
	// fit is since when it has not failed any more; zero: it fails, or never failed. For some time the
	// next failure counts as one more.
	fit member.Moment
}

// limitsAssignment reports whether the session's failures limit what it may be assigned.
func (d *doubt) limitsAssignment() bool { return d.times > 0 && d.fit.IsZero() }

// blame records one more failure in a step, once for all that fails at the same time.
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

// mostTolerance limits how often the tolerance doubles.
const mostTolerance = 4

// tolerance returns for how long a session that becomes unfit keeps its slots: no time after a long
// time without a failure. The failures of a session that is unfit again and again pass by
// themselves, and others may well fail in the same way: then moves would only cause more.
func (d *doubt) tolerance(s Settings, now member.Moment) time.Duration {
	if d.times == 0 || !d.fit.IsZero() && now.Reached(d.fit.Add(s.Assignment.HomeFor)) {
		return 0
	}
	return backOff(s.Config.BlindAfter, min(d.times, mostTolerance))
}

// possession counts what a replica has: how many slots are assigned to it, whether its session
// holds one, and the step in which it was last observed to acquire one.
type possession struct {
	assigned int
	holds    bool
	acquired uint64
}

// limit returns how many of a target cluster's slots the leader may assign to a replica, given the
// report of its session and the slots that it has. again is when the result may change without an
// event; zero: it does not.
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
		d.keeps = now.Add(d.tolerance(s, now))
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
	case !d.limitsAssignment() && service == member.Untried:
		return assignment.Probe, member.Moment{}
	case !d.limitsAssignment():
		return assignment.NoLimit, member.Moment{}
	case !now.Reached(d.until):
		return assignment.Rest, d.until
	case service == member.Untried:
		return assignment.Probe, member.Moment{}
	case has.acquired > d.step:
		d.fit = now
		return assignment.NoLimit, member.Moment{}
	case has.holds:
		return assignment.ProbeMore, member.Moment{} // it held these slots before, which does not show that it can acquire more
	}
	return assignment.Probe, member.Moment{}
}

// suspended returns the limit of a replica whose session does not act. It has just started or has
// just been suspended: it keeps its slots for as long as those of a dead session are kept.
func (d *doubt) suspended(s Settings, now member.Moment) (limit assignment.Limit, again member.Moment) {
	if d.idle.IsZero() {
		d.idle = now
	}
	if end := d.idle.Add(s.Config.TakeOver); now.Since(end) < 0 {
		return assignment.Rest, end
	}
	return assignment.Evict, member.Moment{}
}

// retry returns the limit of a replica that reports that it cannot serve: one slot, once its time
// is over and it has none. Without that slot it could not find out that it can serve again.
func (d *doubt) retry(s Settings, now member.Moment, step uint64, has possession) (limit assignment.Limit, again member.Moment) {
	timeout := s.Config.OpenTimeout + s.Config.TakeOver
	if !d.tried.IsZero() && now.Reached(d.tried.Add(timeout)) {
		d.blame(s, now, step)
	}
	switch {
	case d.tried.IsZero() && has.assigned > 1 && !now.Reached(d.keeps):
		return assignment.Retry, d.keeps
	case !now.Reached(d.until):
		return assignment.Evict, d.until
	case d.tried.IsZero() && has.assigned > 0:
		return assignment.Evict, member.Moment{} // they could be assigned to no other replica
	case d.tried.IsZero():
		d.tried = now
	}
	return assignment.Retry, d.tried.Add(timeout)
}
