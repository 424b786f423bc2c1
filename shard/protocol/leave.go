package protocol

import (
	"strconv"
	"strings"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// leavesUnasked says that a session that leaves has waited long enough for the leader to plan its slots elsewhere.
func (r *Session) leavesUnasked(now member.Moment, s *slot) bool {
	if !r.notes.Leaving {
		return false
	}
	deadline := r.leavingAt.Add(r.settings.Config.LeaveUnasked)
	if now.Reached(deadline) {
		return true
	}
	r.deadlineFor(now, s, deadline)
	return false
}

// decideLeave gives up the session Lease when nothing is held and nothing in flight.
func (r *Session) decideLeave(now member.Moment) {
	r.giveUpWhenIdle(now)
	if r.notes.Leaving && r.engaged.isEmpty() {
		r.own.Release(now)
	}
}

// writeNotes puts on the session Lease, which is about to be renewed, what the others have to know.
func (r *Session) writeNotes(now member.Moment) {
	var confirmed, weights []string
	for _, s := range r.slots {
		if r.confirms(s) {
			confirmed = append(confirmed, string(s.lease.UID))
		}
		if weight, known := r.weights[s.number]; known && s.phase != free {
			weights = append(weights, strconv.Itoa(s.number)+":"+strconv.FormatInt(weight, 10))
		}
	}
	r.notes.Confirmed = strings.Join(confirmed, ",")
	text := strings.Join(weights, ",")
	if recounted := r.counts != nil && (r.notes.Counts == nil || *r.counts != *r.notes.Counts); recounted || text != r.notes.Weights {
		if r.weighedAt.IsZero() || now.Reached(r.weighedAt.Add(r.settings.Config.WeighEvery)) {
			r.notes.Weights, r.notes.Counts, r.weighedAt = text, r.counts, now
		}
	}
	r.noteFitness(now)
	r.own.Note(r.notes)
}
