package protocol

import (
	"fmt"
	"maps"
	"slices"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// DefaultTarget is the name, in reports of sessions, of the only target cluster of a fleet.
const DefaultTarget = "default"

// mostBackOff limits how often the back-off doubles after consecutive failures.
const mostBackOff = 5

// backOff returns the back-off after a number of consecutive failures, at least one.
func backOff(first time.Duration, failures int) time.Duration {
	return first << min(failures-1, mostBackOff)
}

// ability is what the session has observed about what it can do.
type ability struct {
	// tried is the result of the last slot that opened or failed to, by target cluster; broken is what is wrong with the watches
	// of a target's objects.
	tried  map[string]member.Service
	broken map[string]string
	// patience is how long a slot may take to open, by target cluster; where it is missing, the configured time.
	patience map[string]time.Duration
	// blind is true if the session's renewals were not visible in its watch when this was last checked.
	blind bool
	// report is the fitness that was last written to the session Lease.
	report member.Fitness
	// resigned is the time before which the session is no candidate for the leadership, because it could not do a leader's work.
	resigned member.Moment
	// resignations counts how often the session has resigned for that reason; it starts again after some time without one.
	resignations int
}

// cluster returns the target cluster of a slot's objects.
func (s *slot) cluster() string { return DefaultTarget }

// handleOpened records that the objects of a slot are known. How long that took shows how long lists take here: the next slots may
// take twice as long.
func (r *Session) handleOpened(now member.Moment, e Opened) {
	if e.Slot < 0 || e.Slot >= len(r.slots) {
		return
	}
	if s := r.slots[e.Slot]; s.phase != free && s.epoch == e.Epoch && !s.opened {
		s.opened, s.failures = true, 0
		r.touch(s)
		r.tried[s.cluster()] = member.Serving
		r.patience[s.cluster()] = r.bounded(2 * now.Since(s.openSince))
	}
}

// bounded returns a patience for slots that open, which is never less than the configured time.
func (r *Session) bounded(patience time.Duration) time.Duration {
	least := r.settings.Config.OpenTimeout
	return min(max(patience, least), least<<mostBackOff)
}

// isBlind reports whether the session's renewals have succeeded for a long time without becoming visible in its watch. The
// changes of other sessions are not visible then either. A failed renewal restarts the time, but does not end blindness: only a
// renewal that becomes visible does.
func (r *Session) isBlind(now member.Moment) bool {
	if r.blind {
		_, observing := r.others.Observing()
		return !observing
	}
	unseen := r.others.Unseen()
	return !unseen.IsZero() && now.Since(unseen) >= r.settings.Config.BlindAfter
}

// blindWake returns when the session will be blind if no renewal becomes visible; the zero Moment if it already is or no renewal
// is missing.
func (r *Session) blindWake() member.Moment {
	if unseen := r.others.Unseen(); !unseen.IsZero() && !r.blind {
		return unseen.Add(r.settings.Config.BlindAfter)
	}
	return member.Moment{}
}

// look records that the session has become blind, or observes again.
func (r *Session) look(now member.Moment) {
	if blind := r.isBlind(now); blind != r.blind {
		r.blind = blind
		r.touchAll()
	}
}

// opens sets the deadline by which a slot that was acquired or resumed has to open.
func (r *Session) opens(now member.Moment, s *slot) {
	s.openSince, s.openBy = now, now.Add(r.bounded(r.patience[s.cluster()]))
}

// failsToOpen reports whether the deadline by which a slot had to open has passed. The session then leaves the slot alone for a
// while, so that another session can try, and tries again later for twice as long: lists that are only slow end then.
func (r *Session) failsToOpen(now member.Moment, s *slot) bool {
	if s.opened {
		return false
	}
	if !now.Reached(s.openBy) {
		r.laterFor(s, s.openBy)
		return false
	}
	s.failures++
	s.closedUntil = now.Add(backOff(r.settings.Config.OpenTimeout, s.failures))
	r.tried[s.cluster()] = member.Failing
	r.patience[s.cluster()] = max(r.patience[s.cluster()], r.bounded(2*s.openBy.Since(s.openSince)))
	return true
}

// timeRelease acts on a slot whose holder could not be cleared for a long time although nothing of it is in flight. The session
// gives up then: it works on none of its slots any more, and empties its own Lease once nothing is in flight, so that other
// sessions take over the slots at once. It cannot continue with the slot: a write without an answer may take effect later.
func (r *Session) timeRelease(now member.Moment, s *slot) {
	if s.clearing.IsZero() || r.stuck != "" {
		return
	}
	if deadline := s.clearing.Add(r.settings.Config.BlindAfter); !now.Reached(deadline) {
		r.laterFor(s, deadline)
		return
	}
	r.stuck = fmt.Sprintf("slot %d: expected the slot Lease to be written within %v of its hand-over, got no answer or a refusal; check "+
		"the connection to the API server and what may refuse the write, and start a new session", s.number, r.settings.Config.BlindAfter)
	r.touchAll()
}

// giveUpWhenIdle empties the session Lease if the session has given up and nothing of any slot is in flight.
func (r *Session) giveUpWhenIdle(now member.Moment) {
	if r.stuck == "" || r.activity != active {
		return
	}
	for _, s := range r.slots {
		if s.busy {
			return
		}
	}
	r.own.Release(now)
	r.touchAll() // the session is entitled to none of them any more
}

// isClosed reports whether the session currently leaves a slot alone because it did not open.
func (r *Session) isClosed(now member.Moment, s *slot) bool {
	if now.Reached(s.closedUntil) {
		return false
	}
	r.laterFor(s, s.closedUntil)
	return true
}

// fitness returns what the session reports. An unfit session reports since when it is unfit.
func (r *Session) fitness(now member.Moment) member.Fitness {
	f := member.Fitness{Acts: r.activity == active, Observes: !r.blind, Serves: map[string]member.Service{DefaultTarget: member.Untried}}
	maps.Copy(f.Serves, r.tried)
	for target := range r.broken {
		f.Serves[target] = member.Failing
	}
	f.Reason = r.whyUnfit(f)
	if f.IsFit() {
		return f
	}
	f.Since = r.report.Since
	if f.Since.IsZero() {
		f.Since = now.Wall.UTC().Truncate(time.Second)
	}
	return f
}

// Fitness returns what the session reports that it can do.
func (r *Session) Fitness() member.Fitness { return r.report }

// whyUnfit returns a description of what is wrong; "" if nothing is.
func (r *Session) whyUnfit(f member.Fitness) string {
	switch {
	case !f.Acts:
		return "the Leases of the fleet have not been listed"
	case !f.Observes:
		return "renewals of the session Lease succeed and do not show in the watch of Leases"
	}
	for _, target := range slices.Sorted(maps.Keys(f.Serves)) {
		if f.Serves[target] != member.Failing {
			continue
		}
		if broken, is := r.broken[target]; is {
			return broken
		}
		return fmt.Sprintf("a slot did not open within %v", r.settings.Config.OpenTimeout)
	}
	return ""
}

// noteFitness makes the next renewal report a changed fitness.
func (r *Session) noteFitness(now member.Moment) {
	if f := r.fitness(now); !f.IsSame(r.report) {
		if f.IsFit() != r.report.IsFit() {
			r.touchAll() // an unfit session has a shorter deadline for hand-overs
		}
		r.report, r.notes.Fitness = f, f.String()
	}
}

// hurryFitness reports a changed fitness with an immediate renewal. A session that does not act needs its renewals to regain its
// fence.
func (r *Session) hurryFitness(now member.Moment) {
	if r.activity == active {
		r.noteFitness(now)
		r.own.Note(r.notes)
	}
}

// MayLead reports whether the session may stand for election and continue to lead: it observes, and when it last led it could
// list the sessions and write Leases.
func (r *Session) MayLead(now member.Moment) bool {
	return !r.blind && now.Reached(r.resigned)
}

// struggle is the record of a leader's failing writes since the last one that succeeded.
type struggle struct {
	since member.Moment
	// name is the Lease of the first one; several is true if there were others. A single Lease may itself be the cause.
	name    string
	several bool
}

// recordLeaderWrite records the outcome of a leader's write. A leader whose writes get no answer for a long time resigns although
// the renewals of its own Leases succeed: another session may be able to write.
func (r *Session) recordLeaderWrite(now member.Moment, name string, outcome member.Outcome) {
	switch outcome {
	case member.Unanswered, member.Refused:
		if r.writes.since.IsZero() {
			r.writes.since, r.writes.name = now, name
			if now.Since(r.resigned) >= r.settings.Assignment.HomeFor {
				r.resignations = 0
			}
		}
		r.writes.several = r.writes.several || r.writes.name != name
		patience := r.settings.Config.BlindAfter
		if !r.writes.several { // the next leader may fail in the same way: so the leadership changes less often each time
			patience = backOff(patience, r.resignations+1)
		}
		r.resignAfter(now, r.writes.since, patience)
	case member.Done:
		r.writes = struggle{}
	case member.Conflict, member.Exists, member.NotFound:
	}
}

// recordLeaderList records whether a list that only the leader requests succeeded.
func (r *Session) recordLeaderList(now member.Moment, ok bool) {
	if ok {
		r.census.failing = member.Moment{}
		return
	}
	if r.census.failing.IsZero() {
		r.census.failing = now
	}
	r.resignAfter(now, r.census.failing, r.settings.Config.BlindAfter)
}

// resignAfter makes the session resign if a leader's work has failed for longer than patience.
func (r *Session) resignAfter(now, since member.Moment, patience time.Duration) {
	if now.Since(since) < patience || r.resigned.Monotonic > now.Monotonic {
		return
	}
	r.resigned = now.Add(r.settings.Assignment.PassOverFor)
	r.resignations++
}
