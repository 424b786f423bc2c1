package protocol

import (
	"strconv"
	"strings"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// leaveWaitIsOver reports whether a leaving session has waited long enough for the leader to assign its slots to other replicas.
func (r *Session) leaveWaitIsOver(now member.Moment, s *slot) bool {
	if !r.notes.Leaving {
		return false
	}
	deadline := r.leavingAt.Add(r.settings.Config.LeaveWait)
	if now.Reached(deadline) {
		return true
	}
	r.deadlineFor(now, s, deadline)
	return false
}

// decideLeave empties the session Lease when no slot is held and nothing is in flight.
func (r *Session) decideLeave(now member.Moment) {
	r.giveUpWhenIdle(now)
	if r.notes.Leaving && r.engaged.isEmpty() {
		r.own.Release(now)
	}
}

// writeNotes prepares what the session Lease, which is about to be renewed, reports to the other sessions.
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
