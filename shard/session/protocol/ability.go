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

// ability observes what the session can do.
type ability struct {
	*shared

	activation *activation
	// tried is the result of the last slot that opened or failed to, by target cluster; broken
	// describes what is wrong with the watches of a target's objects.
	tried  map[string]member.Service
	broken map[string]string
	// timeouts is how long a slot may take to open, by target cluster; where it is missing, the
	// configured time.
	timeouts map[string]time.Duration
	// blind is true if the session's renewals were not visible in its watch when this was last
	// checked.
	blind bool
	// report is the fitness that was last written to the session Lease.
	report member.Fitness
}

// cluster returns the target cluster of a slot's objects.
func (s *slot) cluster() string { return DefaultTarget }

// handleOpened records that the objects of a slot are known. How long that took shows how long
// lists take here: the next slots may take twice as long.
func (a *ability) handleOpened(now member.Moment, e Opened) {
	if e.Slot < 0 || e.Slot >= len(a.slots) {
		return
	}
	if s := a.slots[e.Slot]; s.phase != free && s.epoch == e.Epoch && !s.opened {
		s.opened, s.failures = true, 0
		a.touch(s)
		a.tried[s.cluster()] = member.Serving
		a.timeouts[s.cluster()] = a.bounded(2 * now.Since(s.openSince))
	}
}

// bounded returns a timeout for slots that open, which is never less than the configured time.
func (a *ability) bounded(timeout time.Duration) time.Duration {
	least := a.settings.Config.OpenTimeout
	return min(max(timeout, least), least<<mostBackOff)
}

// isBlind reports whether the session's renewals have succeeded for a long time without becoming
// visible in its watch. The changes of other sessions are not visible then either. A failed renewal
// restarts the time, but does not end blindness: only a renewal that becomes visible does.
func (a *ability) isBlind(now member.Moment) bool {
	if a.blind {
		_, observing := a.others.Observing()
		return !observing
	}
	unseen := a.others.Unseen()
	return !unseen.IsZero() && now.Since(unseen) >= a.settings.Config.BlindAfter
}

// blindWake returns when the session will be blind if no renewal becomes visible; the zero Moment
// if it already is or no renewal is missing.
func (a *ability) blindWake() member.Moment {
	if unseen := a.others.Unseen(); !unseen.IsZero() && !a.blind {
		return unseen.Add(a.settings.Config.BlindAfter)
	}
	return member.Moment{}
}

// observeBlindness records that the session has become blind, or observes again.
func (a *ability) observeBlindness(now member.Moment) {
	if blind := a.isBlind(now); blind != a.blind {
		a.blind = blind
		a.touchAll()
	}
}

// setOpenDeadline sets the deadline by which a slot that was acquired or resumed has to open.
func (a *ability) setOpenDeadline(now member.Moment, s *slot) {
	s.openSince, s.openBy = now, now.Add(a.bounded(a.timeouts[s.cluster()]))
}

// failsToOpen reports whether the deadline by which a slot had to open has passed. The session then
// leaves the slot alone for a while, so that another session can try, and tries again later for
// twice as long: lists that are only slow end then.
func (a *ability) failsToOpen(now member.Moment, s *slot) bool {
	if s.opened {
		return false
	}
	if !now.Reached(s.openBy) {
		a.laterFor(s, s.openBy)
		return false
	}
	s.failures++
	s.closedUntil = now.Add(backOff(a.settings.Config.OpenTimeout, s.failures))
	a.tried[s.cluster()] = member.Failing
	a.timeouts[s.cluster()] = max(a.timeouts[s.cluster()], a.bounded(2*s.openBy.Since(s.openSince)))
	return true
}

// isClosed reports whether the session currently leaves a slot alone because it did not open.
func (a *ability) isClosed(now member.Moment, s *slot) bool {
	if now.Reached(s.closedUntil) {
		return false
	}
	a.laterFor(s, s.closedUntil)
	return true
}

// fitness returns what the session reports. An unfit session reports since when it is unfit.
func (a *ability) fitness(now member.Moment) member.Fitness {
	f := member.Fitness{
		Acts: a.activation.activity == active, Observes: !a.blind, Serves: map[string]member.Service{DefaultTarget: member.Untried},
	}
	maps.Copy(f.Serves, a.tried)
	for target := range a.broken {
		f.Serves[target] = member.Failing
	}
	f.Reason = a.whyUnfit(f)
	if f.IsFit() {
		return f
	}
	f.Since = a.report.Since
	if f.Since.IsZero() {
		f.Since = now.Wall.UTC().Truncate(time.Second)
	}
	return f
}

// whyUnfit returns a description of what is wrong; "" if nothing is.
func (a *ability) whyUnfit(f member.Fitness) string {
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
		if broken, is := a.broken[target]; is {
			return broken
		}
		return fmt.Sprintf("a slot did not open within %v", a.settings.Config.OpenTimeout)
	}
	return ""
}
