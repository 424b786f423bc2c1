package protocol

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// leader does the work of a session that leads. Two leaders at once cause hand-overs, and never two
// owners: each of their writes names the version that it replaces, and none of them names a holder.
type leader struct {
	*shared

	activation *activation
	ability    *ability
	assigner   *assigner
	// creating are the slots whose Lease has to be created, open those for which the sessions have to
	// be listed.
	creating, open slotSet
	// resigned is the time before which the session is no candidate for the leadership, because it
	// could not do a leader's work.
	resigned member.Moment
	// resignations counts how often the session has resigned for that reason; it starts again after
	// some time without one.
	resignations int
	term
}

// term is the state of one time as leader.
type term struct {
	leads  bool
	census census
	// writes is the record of its failing writes since the last that succeeded.
	writes failingWrites
	// surpassed is since when another session can do what this one cannot; zero: there is none.
	surpassed member.Moment
	// deaths are the session Leases that are being emptied, by their replicas.
	deaths map[string]*death
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
func (ld *leader) lead(leads bool) {
	ld.term = term{leads: leads, deaths: map[string]*death{}}
	ld.assigner.assignments = assignments{
		doubts: map[string]*doubt{}, needs: map[string]map[int]member.Moment{},
		underway: newSlotSet(len(ld.slots)), waiting: newSlotSet(len(ld.slots)),
	}
	for _, s := range ld.slots {
		s.leading = leading{homeSince: s.homeSince}
	}
	ld.touchAll() // which slot Leases have to be created and listed is decided again, too
}

// decide does the leader's work that concerns more than one slot.
func (ld *leader) decide(now member.Moment) {
	if !ld.leads || ld.activation.activity != active {
		return
	}
	ld.declareDead(now)
	ld.listSessions(now)
	ld.assigner.assign(now)
	ld.recordSurpassed(now, ld.assigner.surpassed)
}

// decideSlot does the leader's work for one slot.
func (ld *leader) decideSlot(now member.Moment, s *slot) {
	ld.createSlot(now, s)
	ld.assigner.timeOwnerless(now, s)
	ld.assigner.pace(now, s)
	ld.assigner.write(now, s)
}

// declareDead empties the Leases of sessions that have been silent for the time of a take-over, by
// compare and swap with the version that was silent. A session is dead only when that has
// succeeded.
func (ld *leader) declareDead(now member.Moment) {
	if _, observing := ld.others.Observing(); !observing {
		return
	}
	for _, peer := range ld.others.Peers() {
		if peer.Session == "" || peer.Session == ld.settings.Session {
			continue
		}
		silence, lease := ld.others.Silence(now, peer.Replica)
		if lease == nil {
			ld.later(now.Add(ld.settings.Config.TakeOver - silence))
			continue
		}
		d := ld.deaths[peer.Replica]
		if d == nil {
			d = &death{}
			ld.deaths[peer.Replica] = d
		}
		switch {
		case d.pending:
		case now.Since(d.again) < 0:
			ld.later(d.again)
		default:
			d.pending = true
			request := member.Request{Verb: member.Update, Name: lease.Name, Lease: emptied(lease), Need: member.NeedLeadership}
			if d.conflict {
				request = member.Request{Verb: member.Get, Name: lease.Name, Need: member.NeedLeadership}
			}
			ld.send(request, question{about: aboutDeath, session: peer.Session})
		}
	}
}

// emptied returns a session Lease without a holder. It still records that its session was leaving,
// so that its slots keep their home, and the weights of its slots, which are assigned now.
func emptied(lease *coordinationv1.Lease) *coordinationv1.Lease {
	l := lease.DeepCopy()
	member.Untrack(l)
	l.Spec.HolderIdentity = nil
	member.Annotate(l, v1alpha1.AnnotationConfirmed, "")
	return l
}

// handleDeath records whether a session Lease was emptied. If that is unknown the watch will show
// it, and until then the same write is harmless. If the Lease has changed, the watch will show that
// too, unless etcd has been restored.
func (ld *leader) handleDeath(now member.Moment, q question, reply member.Reply) {
	replica, _ := member.ReplicaOf(q.session)
	switch reply.Outcome {
	case member.Done:
		ld.others.Correct(now, reply.Lease)
	case member.NotFound:
		ld.others.Missed(now, replica)
	case member.Conflict, member.Exists, member.Unanswered, member.Refused:
	}
	if d := ld.deaths[replica]; d != nil {
		d.pending, d.again, d.conflict = false, now.Add(retryAfter), reply.Outcome == member.Conflict
	}
}

// createSlot creates a missing slot Lease, and does the leader's part in ending its quarantine:
// after the Lease is observed to exist, all sessions are listed live, and the list is written to
// it.
func (ld *leader) createSlot(now member.Moment, s *slot) {
	open, creating := false, false
	switch {
	case s.mustRead:
	case s.lease == nil:
		if ld.activation.maySend(now, s) {
			ld.sendForSlot(s, member.Request{
				Verb: member.Create, Lease: newLease(ld.settings.Fleet, ld.settings.Namespace, s.name), Need: member.NeedLeadership,
			}, question{})
		}
		creating = now.Since(s.retry) >= 0 // one that is refused does not delay the others
	case s.genuine && s.labelled:
	case !s.genuine && ld.census.step < s.uidStep:
		open = true
	case ld.activation.maySend(now, s):
		ld.sendForSlot(s, member.Request{Verb: member.Update, Lease: ld.withCensus(now, s), Need: member.NeedLeadership}, question{})
	}
	ld.open.set(s.number, open)
	ld.creating.set(s.number, creating)
}

// listSessions lists all sessions live if a slot waits for that and no slot Lease is about to be
// created that would need another list.
func (ld *leader) listSessions(now member.Moment) {
	switch {
	case ld.open.isEmpty() || !ld.creating.isEmpty() || ld.census.pending:
	case now.Since(ld.census.again) < 0:
		ld.later(ld.census.again)
	default:
		ld.census.pending = true
		ld.send(member.Request{Verb: member.List, Need: member.NeedLeadership}, question{about: aboutCensus})
	}
}

// withCensus returns the Lease with the sessions that have to confirm before the slot can be
// acquired. A holder stays: if it has never acquired this Lease, it clears its name itself, or is
// dead.
func (ld *leader) withCensus(now member.Moment, s *slot) *coordinationv1.Lease {
	l := ld.written(now, s)
	member.Label(l, ld.settings.Fleet, v1alpha1.LeaseOfSlot)
	if !s.genuine {
		member.Annotate(l, v1alpha1.AnnotationLeaseUID, string(l.UID))
		member.Annotate(l, v1alpha1.AnnotationQuarantine, strings.Join(ld.census.sessions, ","))
	}
	return l
}

// handleCensus applies the live list of all sessions.
func (ld *leader) handleCensus(now member.Moment, q question, reply member.Reply) {
	ld.census.pending = false
	if reply.Outcome != member.Done {
		ld.census.again = now.Add(retryAfter)
		ld.recordList(now, false)
		return
	}
	ld.recordList(now, true)
	sessions := []string{ld.settings.Session}
	for _, l := range reply.Leases {
		if _, ok := member.ReplicaOfLease(ld.settings.Fleet, l.Name); ok && member.Holder(l) != "" {
			sessions = append(sessions, member.Holder(l))
		}
	}
	slices.Sort(sessions)
	ld.census.step, ld.census.sessions = q.step, slices.Compact(sessions)
	ld.touchAll()
}

// failingWrites is the record of a leader's failing writes since the last one that succeeded.
type failingWrites struct {
	since member.Moment
	// name is the Lease of the first one; several is true if there were others. A single Lease may
	// itself be the cause.
	name    string
	several bool
}

// recordWrite records the outcome of a leader's write. A leader whose writes get no answer for a
// long time resigns although the renewals of its own Leases succeed: another session may be able to
// write.
func (ld *leader) recordWrite(now member.Moment, name string, outcome member.Outcome) {
	switch outcome {
	case member.Unanswered, member.Refused:
		if ld.writes.since.IsZero() {
			ld.writes.since, ld.writes.name = now, name
			ld.forgetResignations(now)
		}
		ld.writes.several = ld.writes.several || ld.writes.name != name
		timeout := ld.settings.Config.BlindAfter
		if !ld.writes.several { // the next leader may fail in the same way: so the leadership changes less often each time
			timeout = backOff(timeout, ld.resignations+1)
		}
		ld.resignAfter(now, ld.writes.since, timeout)
	case member.Done:
		ld.writes = failingWrites{}
	case member.Conflict, member.Exists, member.NotFound:
	}
}

// recordList records whether a list that only the leader requests succeeded.
func (ld *leader) recordList(now member.Moment, ok bool) {
	if ok {
		ld.census.failing = member.Moment{}
		return
	}
	if ld.census.failing.IsZero() {
		ld.census.failing = now
	}
	ld.resignAfter(now, ld.census.failing, ld.settings.Config.BlindAfter)
}

// recordSurpassed records whether another session can do what this one cannot. The leader alone
// sweeps orphans, which needs all accounts and lists of the clusters, so it resigns. What an
// account answers is up to its owner: the leadership changes less often each time.
func (ld *leader) recordSurpassed(now member.Moment, surpassed bool) {
	if !surpassed {
		ld.surpassed = member.Moment{}
		return
	}
	if ld.surpassed.IsZero() {
		ld.surpassed = now
		ld.forgetResignations(now)
	}
	timeout := backOff(ld.settings.Assignment.PassOverFor, ld.resignations+1)
	if due := ld.surpassed.Add(timeout); !now.Reached(due) {
		ld.later(due)
		return
	}
	ld.resignAfter(now, ld.surpassed, timeout)
}

// forgetResignations starts to count resignations again if the last one was long ago.
func (ld *leader) forgetResignations(now member.Moment) {
	if now.Since(ld.resigned) >= ld.settings.Assignment.HomeFor {
		ld.resignations = 0
	}
}

// resignAfter has the session resign if a leader's work has failed for longer than timeout.
func (ld *leader) resignAfter(now, since member.Moment, timeout time.Duration) {
	if now.Since(since) < timeout || ld.resigned.Monotonic > now.Monotonic {
		return
	}
	ld.resigned = now.Add(ld.settings.Assignment.PassOverFor)
	ld.resignations++
}
