package protocol

import (
	"slices"
	"strconv"
	"strings"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// renewal composes what the renewals of the session Lease report to the other sessions.
type renewal struct {
	*shared

	activation *activation
	ability    *ability
	table      *table
	notes      member.Notes
	// weights are those of the slots that the session holds, counts its report about its machines.
	// They were last reported at weighedAt.
	weights   map[int]int64
	counts    *string
	weighedAt member.Moment
}

// leave reports at once that the session hands over its slots.
func (n *renewal) leave(now member.Moment) {
	if n.isLeaving() {
		return
	}
	n.leavingAt, n.notes.Leaving = now, true
	n.own.Note(n.notes)
	n.touchAll()
}

// weigh records what is to be reported of this session's slots and machines.
func (n *renewal) weigh(e Weighed) { n.weights, n.counts, n.dirty = e.Weights, e.Counts, true }

// write prepares what the session Lease, which is about to be renewed, reports to the other
// sessions.
func (n *renewal) write(now member.Moment) {
	var confirmed, weights []string
	for _, s := range n.slots {
		if n.confirms(s) {
			confirmed = append(confirmed, string(s.lease.UID))
		}
		if weight, known := n.weights[s.number]; known && s.phase != free {
			weights = append(weights, strconv.Itoa(s.number)+":"+strconv.FormatInt(weight, 10))
		}
	}
	n.notes.Confirmed = strings.Join(confirmed, ",")
	text := strings.Join(weights, ",")
	if recounted := n.counts != nil && (n.notes.Counts == nil || *n.counts != *n.notes.Counts); recounted || text != n.notes.Weights {
		if n.weighedAt.IsZero() || now.Reached(n.weighedAt.Add(n.settings.Config.WeighEvery)) {
			n.notes.Weights, n.notes.Counts, n.weighedAt = text, n.counts, now
		}
	}
	n.noteFitness(now)
	n.own.Note(n.notes)
}

// reportFitnessNow reports a changed fitness with an immediate renewal. A session that does not act
// needs its renewals to regain its fence.
func (n *renewal) reportFitnessNow(now member.Moment) {
	if n.activation.activity == active {
		n.noteFitness(now)
		n.own.Note(n.notes)
	}
}

// confirms reports whether this session can confirm that it has nothing in flight of a slot whose
// Lease is new.
func (n *renewal) confirms(s *slot) bool {
	return s.lease != nil && s.genuine && !s.busy && s.phase == free && slices.Contains(s.quarantine, n.settings.Session)
}

// handleAccounts records what this session reports about accounts, with its next renewal.
func (n *renewal) handleAccounts(e Compared) {
	n.table.reportedAccounts, n.notes.Accounts, n.dirty = e.Accounts, e.Accounts.String(), true
}

// noteFitness makes the next renewal report a changed fitness.
func (n *renewal) noteFitness(now member.Moment) {
	if f := n.ability.fitness(now); !f.IsSame(n.ability.report) {
		if f.IsFit() != n.ability.report.IsFit() {
			n.touchAll() // an unfit session has a shorter deadline for hand-overs
		}
		n.ability.report, n.notes.Fitness = f, f.String()
	}
}
