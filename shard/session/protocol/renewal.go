package protocol

import (
	"slices"
	"strings"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// renewal composes what the renewals of the session Lease report to the other sessions.
type renewal struct {
	*shared

	activation *activation
	ability    *ability
	table      *table
	reporting  *reporting
	notes      member.Notes
}

// leave reports at once that the session hands over its slots.
func (r *renewal) leave(now member.Moment) {
	if r.isLeaving() {
		return
	}
	r.leavingAt, r.notes.Leaving = now, true
	r.own.Note(r.notes)
	r.touchAll()
}

// write prepares what the session Lease, which is about to be renewed, reports to the other
// sessions.
func (r *renewal) write(now member.Moment) {
	var confirmed []string
	for _, s := range r.slots {
		if r.confirms(s) {
			confirmed = append(confirmed, string(s.lease.UID))
		}
	}
	r.notes.Confirmed = strings.Join(confirmed, ",")
	r.notes.Counted = r.reporting.counted()
	r.noteFitness(now)
	r.own.Note(r.notes)
}

// reportFitnessNow reports a changed fitness with an immediate renewal. A session that does not act
// needs its renewals to regain its fence.
func (r *renewal) reportFitnessNow(now member.Moment) {
	if r.activation.activity == active {
		r.noteFitness(now)
		r.own.Note(r.notes)
	}
}

// confirms reports whether this session can confirm that it has nothing in flight of a slot whose
// Lease is new.
func (r *renewal) confirms(s *slot) bool {
	return s.lease != nil && s.genuine && !s.busy && s.phase == free && slices.Contains(s.quarantine, r.settings.Session)
}

// handleAccounts records what this session reports about accounts, with its next renewal.
func (r *renewal) handleAccounts(e Compared) {
	r.table.reportedAccounts, r.notes.Accounts, r.dirty = e.Accounts, e.Accounts.String(), true
}

// noteFitness makes the next renewal report a changed fitness.
func (r *renewal) noteFitness(now member.Moment) {
	if f := r.ability.fitness(now); !f.IsSame(r.ability.report) {
		if f.IsFit() != r.ability.report.IsFit() {
			r.touchAll() // an unfit session has a shorter deadline for hand-overs
		}
		r.ability.report, r.notes.Fitness = f, f.String()
	}
}
