package protocol

import (
	"fmt"
	"maps"
	"slices"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// DefaultTarget is the name, in what sessions report, of the only target cluster of a fleet.
const DefaultTarget = "default"

// mostBackOff limits how often the time doubles for which something is left alone that has failed again and again.
const mostBackOff = 5

// backOff returns the time for which something is left alone that has failed so many times, at least once, one after the other.
func backOff(first time.Duration, failures int) time.Duration {
	return first << min(failures-1, mostBackOff)
}

// ability is what the session has found out of what it can do.
type ability struct {
	// tried is what came of the last slot that opened, or did not, by target cluster; broken is what is wrong with the
	// watches of a target's objects.
	tried  map[string]member.Service
	broken map[string]string
	// blind says that the session's renewals do not come back, as it was when it was last looked at.
	blind bool
	// report is the fitness that was last put on the session Lease.
	report member.Fitness
	// resigned is before when the session is no candidate for the leadership, because it could not do what the leader is for.
	resigned member.Moment
	// resignations counts how often the session has resigned for that, until it has not for some time.
	resignations int
}

// cluster returns the target cluster of a slot's objects.
func (s *slot) cluster() string { return DefaultTarget }

// takeOpened takes in that the objects of a slot are known.
func (r *Session) takeOpened(e Opened) {
	if e.Slot < 0 || e.Slot >= len(r.slots) {
		return
	}
	if s := r.slots[e.Slot]; s.phase != free && s.epoch == e.Epoch && !s.opened {
		s.opened, s.failures = true, 0
		r.touch(s)
		r.tried[s.cluster()] = member.Serving
	}
}

// isBlind reports whether the session's renewals have succeeded for long and have not come back through its watch. What it
// would have to hear of others it does not hear then. A failed renewal begins the time anew, and does not make a blind session
// see: only a renewal that comes back does.
func (r *Session) isBlind(now member.Moment) bool {
	if r.blind {
		_, observing := r.others.Observing()
		return !observing
	}
	unseen := r.others.Unseen()
	return !unseen.IsZero() && now.Since(unseen) >= r.settings.Config.BlindAfter
}

// blindWake returns when the session will be blind if nothing comes back; the zero Moment if it is or nothing is missing.
func (r *Session) blindWake() member.Moment {
	if unseen := r.others.Unseen(); !unseen.IsZero() && !r.blind {
		return unseen.Add(r.settings.Config.BlindAfter)
	}
	return member.Moment{}
}

// look notices that the session has become blind, or sees again.
func (r *Session) look(now member.Moment) {
	if blind := r.isBlind(now); blind != r.blind {
		r.blind = blind
		r.touchAll()
	}
}

// opens sets the time in which a slot that was acquired, or is worked on again, has to open.
func (r *Session) opens(now member.Moment, s *slot) {
	s.openBy = now.Add(r.settings.Config.OpenTimeout)
}

// failsToOpen reports whether the time has passed in which a slot had to open. The session leaves it alone for a while then,
// so that another can try, and itself later.
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
	return true
}

// timeRelease notices that the holder of a slot could not be cleared for long although nothing of it is in flight. The session
// gives up then: it works on none of its slots any more, and empties its own Lease when nothing is in flight, so that others take
// them at once. It cannot go on with the slot: a write without an answer may take effect later.
func (r *Session) timeRelease(now member.Moment, s *slot) {
	if s.clearing.IsZero() || r.stuck != "" {
		return
	}
	if deadline := s.clearing.Add(r.settings.Config.BlindAfter); !now.Reached(deadline) {
		r.laterFor(s, deadline)
		return
	}
	r.stuck = fmt.Sprintf("slot %d: expected the slot Lease to be written within %v of its hand-over, got no answer or a refusal; look at "+
		"the way to the API server and at what may refuse the write, and start a new session", s.number, r.settings.Config.BlindAfter)
	r.touchAll()
}

// giveUpWhenIdle gives the session Lease up when the session has given up, and nothing of any slot is in flight.
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

// isClosed reports whether the session leaves a slot alone that did not open.
func (r *Session) isClosed(now member.Moment, s *slot) bool {
	if now.Reached(s.closedUntil) {
		return false
	}
	r.laterFor(s, s.closedUntil)
	return true
}

// fitness returns what the session reports. That it is unfit is reported since when it first was.
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

// whyUnfit returns what is wrong, for people; "" if nothing is.
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

// noteFitness has what the session can do reported with the next renewal.
func (r *Session) noteFitness(now member.Moment) {
	if f := r.fitness(now); !f.IsSame(r.report) {
		if f.IsFit() != r.report.IsFit() {
			r.touchAll() // hand-overs have another deadline
		}
		r.report, r.notes.Fitness = f, f.String()
	}
}

// hurryFitness has it reported at once, if it has changed. A session that does not act has no renewals to spare.
func (r *Session) hurryFitness(now member.Moment) {
	if r.activity == active {
		r.noteFitness(now)
		r.own.Note(r.notes)
	}
}

// MayLead reports whether the session may stand for election and go on leading: it observes, and when it last led it could list
// the sessions and write Leases.
func (r *Session) MayLead(now member.Moment) bool {
	return !r.blind && now.Reached(r.resigned)
}

// struggle is what a leader's writes meet while none gets an answer.
type struggle struct {
	since member.Moment
	// name is the Lease of the first one; several says that there were others. One Lease alone may be to blame itself.
	name    string
	several bool
}

// takeLeaderWrite notes what came of a write of the leader's. A leader whose writes are not answered for long resigns, although
// it gets the renewals of its own Leases through: another may be able to do what it leads for.
func (r *Session) takeLeaderWrite(now member.Moment, name string, outcome member.Outcome) {
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
		if !r.writes.several { // whoever leads next may meet the same: the leadership changes less and less often for that
			patience = backOff(patience, r.resignations+1)
		}
		r.resignAfter(now, r.writes.since, patience)
	case member.Done:
		r.writes = struggle{}
	case member.Conflict, member.Exists, member.NotFound:
	}
}

// takeLeaderList notes whether a list could be had that only the leader asks for.
func (r *Session) takeLeaderList(now member.Moment, ok bool) {
	if ok {
		r.census.failing = member.Moment{}
		return
	}
	if r.census.failing.IsZero() {
		r.census.failing = now
	}
	r.resignAfter(now, r.census.failing, r.settings.Config.BlindAfter)
}

// resignAfter has the session resign when what it leads for has failed for long.
func (r *Session) resignAfter(now, since member.Moment, patience time.Duration) {
	if now.Since(since) < patience || r.resigned.Monotonic > now.Monotonic {
		return
	}
	r.resigned = now.Add(r.settings.Assignment.PassOverFor)
	r.resignations++
}
