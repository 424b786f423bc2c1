package protocol

import (
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// leader is the state of a session that leads. Two leaders at once cause hand-overs, and never two owners: each of their writes
// names the version that it replaces, and none of them names a holder.
type leader struct {
	leads  bool
	census census
	// writes is the record of its failing writes since the last that succeeded.
	writes struggle
	// deaths are the session Leases that are being emptied, by their replicas.
	deaths map[string]*death
	// doubts are the failures of sessions that live, by their identities.
	doubts map[string]*doubt
	// needs is when slots were last reported to need an account, by the account's key.
	needs map[string]map[int]member.Moment
	// assignAgain is the time before which slots are not assigned again, assigned the last assignment.
	assignAgain member.Moment
	assigned    assignment.Verdict
}

// census is a live list of all sessions, requested in step.
type census struct {
	pending  bool
	step     uint64
	sessions []string
	again    member.Moment
	// failing is since when it has failed; zero: it does not.
	failing member.Moment
}

// death is a session Lease that is being emptied.
type death struct {
	pending bool
	again   member.Moment
	// conflict is true if the Lease differs from what we have observed and has to be read.
	conflict bool
}

// lead begins or ends the leadership. A leader knows only what it has observed and decided itself.
func (r *Session) lead(leads bool) {
	r.leader = leader{leads: leads, deaths: map[string]*death{}, doubts: map[string]*doubt{}, needs: map[string]map[int]member.Moment{}}
	for _, s := range r.slots {
		s.leading = leading{homeSince: s.homeSince}
	}
	r.touchAll() // which slot Leases have to be created and listed is decided again, too
}

// decideLeader does the leader's work that concerns more than one slot.
func (r *Session) decideLeader(now member.Moment) {
	if !r.leads || r.activity != active {
		return
	}
	r.declareDead(now)
	r.listSessions(now)
	r.assignSlots(now)
}

// leadSlot does the leader's work for one slot.
func (r *Session) leadSlot(now member.Moment, s *slot) {
	r.makeSlot(now, s)
	r.timeOwnerless(now, s)
	r.writeAssignments(now, s)
}

// declareDead empties the Leases of sessions that have been silent for the time of a take-over, by compare and swap with the
// version that was silent. A session is dead only when that has succeeded.
func (r *Session) declareDead(now member.Moment) {
	if _, observing := r.others.Observing(); !observing {
		return
	}
	for _, peer := range r.others.Peers() {
		if peer.Session == "" || peer.Session == r.settings.Session {
			continue
		}
		silence, lease := r.others.Silence(now, peer.Replica)
		if lease == nil {
			r.later(now.Add(r.settings.Config.TakeOver - silence))
			continue
		}
		d := r.deaths[peer.Replica]
		if d == nil {
			d = &death{}
			r.deaths[peer.Replica] = d
		}
		switch {
		case d.pending:
		case now.Since(d.again) < 0:
			r.later(d.again)
		default:
			d.pending = true
			request := member.Request{Verb: member.Update, Name: lease.Name, Lease: emptied(lease), Need: member.NeedLeadership}
			if d.conflict {
				request = member.Request{Verb: member.Get, Name: lease.Name, Need: member.NeedLeadership}
			}
			r.send(request, question{about: aboutDeath, session: peer.Session})
		}
	}
}

// emptied returns a session Lease without a holder. It still records that its session was leaving, so that its slots keep their
// home, and the weights of its slots, which are assigned now.
func emptied(lease *coordinationv1.Lease) *coordinationv1.Lease {
	l := lease.DeepCopy()
	l.Spec.HolderIdentity = nil
	member.Annotate(l, v1alpha1.AnnotationConfirmed, "")
	return l
}

// handleDeath records whether a session Lease was emptied. If that is unknown the watch will show it, and until then the same write
// is harmless. If the Lease has changed, the watch will show that too, unless etcd has been restored.
func (r *Session) handleDeath(now member.Moment, q question, reply member.Reply) {
	replica, _ := member.ReplicaOf(q.session)
	switch reply.Outcome {
	case member.Done:
		r.others.Correct(now, reply.Lease)
	case member.NotFound:
		r.others.Missed(now, replica)
	case member.Conflict, member.Exists, member.Unanswered, member.Refused:
	}
	if d := r.deaths[replica]; d != nil {
		d.pending, d.again, d.conflict = false, now.Add(retryAfter), reply.Outcome == member.Conflict
	}
}

// makeSlot creates a missing slot Lease, and does the leader's part in ending its quarantine: after the Lease is observed to
// exist, all sessions are listed live, and the list is written to it.
func (r *Session) makeSlot(now member.Moment, s *slot) {
	open, making := false, false
	switch {
	case s.mustRead:
	case s.lease == nil:
		if r.maySend(now, s) {
			r.sendForSlot(s, member.Request{
				Verb: member.Create, Lease: newLease(r.settings.Fleet, r.settings.Namespace, s.name), Need: member.NeedLeadership,
			}, question{})
		}
		making = now.Since(s.retry) >= 0 // one that is refused does not delay the others
	case s.genuine && s.labelled:
	case !s.genuine && r.census.step < s.uidStep:
		open = true
	case r.maySend(now, s):
		r.sendForSlot(s, member.Request{Verb: member.Update, Lease: r.withCensus(now, s), Need: member.NeedLeadership}, question{})
	}
	r.open.set(s.number, open)
	r.making.set(s.number, making)
}

// listSessions lists all sessions live if a slot waits for that and no slot Lease is about to be created that would need another
// list.
func (r *Session) listSessions(now member.Moment) {
	switch {
	case r.open.isEmpty() || !r.making.isEmpty() || r.census.pending:
	case now.Since(r.census.again) < 0:
		r.later(r.census.again)
	default:
		r.census.pending = true
		r.send(member.Request{Verb: member.List, Need: member.NeedLeadership}, question{about: aboutCensus})
	}
}

// withCensus returns the Lease with the sessions that have to confirm before the slot can be acquired. A holder stays: if it has
// never acquired this Lease, it clears its name itself, or is dead.
func (r *Session) withCensus(now member.Moment, s *slot) *coordinationv1.Lease {
	l := r.written(now, s)
	member.Label(l, r.settings.Fleet, v1alpha1.LeaseOfSlot)
	if !s.genuine {
		member.Annotate(l, v1alpha1.AnnotationLeaseUID, string(l.UID))
		member.Annotate(l, v1alpha1.AnnotationQuarantine, strings.Join(r.census.sessions, ","))
	}
	return l
}

// handleCensus applies the live list of all sessions.
func (r *Session) handleCensus(now member.Moment, q question, reply member.Reply) {
	r.census.pending = false
	if reply.Outcome != member.Done {
		r.census.again = now.Add(retryAfter)
		r.recordLeaderList(now, false)
		return
	}
	r.recordLeaderList(now, true)
	sessions := []string{r.settings.Session}
	for _, l := range reply.Leases {
		if _, ok := member.ReplicaOfLease(r.settings.Fleet, l.Name); ok && member.Holder(l) != "" {
			sessions = append(sessions, member.Holder(l))
		}
	}
	slices.Sort(sessions)
	r.census.step, r.census.sessions = q.step, slices.Compact(sessions)
	r.touchAll()
}
