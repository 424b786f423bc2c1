package protocol

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// assignSlots assigns slots once the leader has observed for long enough (Warm): before that a dead replica could look alive and
// be assigned slots, and a replica that starts at the same time would be ignored.
func (r *Session) assignSlots(now member.Moment) {
	if !r.others.Warm(now) {
		if since, observing := r.others.Observing(); observing {
			r.later(since.Add(r.settings.Config.TakeOver))
		}
		return
	}
	if now.Since(r.assignAgain) < 0 {
		r.later(r.assignAgain)
		return
	}
	r.assignAgain = now.Add(r.settings.Config.RebalanceEvery)
	r.assigned = assignment.Assign(r.settings.Assignment, r.world(now))
	for _, move := range r.assigned.Moves {
		s := r.slots[move.Slot]
		s.target, s.targetHome = move.To, move.Home
		r.touch(s)
		if move.Calm() {
			s.movedAt = now
		}
		if move.Why == assignment.Unreached {
			s.forAccounts.record(r.settings, now)
		}
		if move.PassOver() {
			if s.passed == nil {
				s.passed = map[string]time.Duration{}
			}
			s.passed[move.From] = now.Monotonic + r.settings.Assignment.PassOverFor
			r.doubtOf(r.others.Peer(move.From).Session).blame(r.settings, now, r.steps)
		}
	}
	if again := r.assigned.Again; again > now.Monotonic {
		r.later(latest(r.assignAgain, now.Add(again-now.Monotonic)))
	}
}

// world returns the input of the assignment.
func (r *Session) world(now member.Moment) assignment.World {
	w := assignment.World{Now: now.Monotonic, Slots: make([]assignment.Slot, 0, len(r.slots))}
	peers, has := r.others.Peers(), r.possessions()
	r.forgetDoubts(peers)
	for _, peer := range peers {
		leaving := peer.Leaving || peer.Session == r.settings.Session && r.notes.Leaving
		if peer.Session == r.settings.Session {
			peer.Fitness = r.fitness(now) // what we have reported may not be visible in the watch yet
		}
		if leaving {
			w.Replicas = append(w.Replicas, assignment.Replica{Name: peer.Replica, Capacity: peer.Capacity, Leaving: true})
		} else if peer.Session != "" {
			limit, again := r.doubtOf(peer.Session).limit(r.settings, now, r.steps, peer.Fitness, DefaultTarget, has[peer.Replica])
			r.later(again)
			w.Replicas = append(w.Replicas, assignment.Replica{
				Name: peer.Replica, Capacity: peer.Capacity, Limits: map[string]assignment.Limit{DefaultTarget: limit},
			})
		}
	}
	w.Accounts = r.worldAccounts(now, peers)
	for _, s := range r.slots {
		r.remember(s)
		maps.DeleteFunc(s.passed, func(_ string, until time.Duration) bool { return until <= now.Monotonic })
		one := assignment.Slot{
			Target: s.cluster(), Weight: r.weighs(s), Holder: r.owner(s), Assigned: s.assigned, Home: s.home,
			UnownedSince: s.ownerless.Monotonic, Moved: s.movedAt.Monotonic, Passed: s.passed,
			MovedForAccount: s.forAccounts.last.Monotonic, StaysUntil: s.forAccounts.blocked.Monotonic,
		}
		if s.target != "" {
			one.Assigned, one.Home = s.target, s.targetHome
		}
		if one.Home != "" {
			one.HomeUntil = s.homeSince.Add(r.settings.Assignment.HomeFor).Monotonic
			if s.home != one.Home {
				one.HomeUntil = now.Add(r.settings.Assignment.HomeFor).Monotonic
			}
		}
		w.Slots = append(w.Slots, one)
	}
	return w
}

// possessions returns how many slots are assigned to each replica and what it holds.
func (r *Session) possessions() map[string]possession {
	all := map[string]possession{}
	for _, s := range r.slots {
		has := all[s.assigned]
		has.assigned++
		all[s.assigned] = has
		if owner := r.owner(s); owner != "" {
			has := all[owner]
			has.holds, has.acquired = true, max(has.acquired, s.holderStep)
			all[owner] = has
		}
	}
	return all
}

// reported returns the weight that the slot's holder reports.
func (r *Session) reported(s *slot) (weight int64, known bool) {
	if w := r.words[s.replica]; w != nil {
		weight, known = w.weightOf[s.number]
	}
	return weight, known
}

// remember keeps the weight that the slot's holder reports, for the time until its next holder reports one.
func (r *Session) remember(s *slot) {
	if weight, known := r.reported(s); known {
		s.reported, s.wasReported = weight, true
	}
}

// weighs returns the weight of a slot: the one that its holder reports, dead or alive; otherwise the last one reported; otherwise
// the one recorded on its Lease.
func (r *Session) weighs(s *slot) int64 {
	weight, known := r.reported(s)
	switch {
	case known:
		return weight
	case s.wasReported:
		return s.reported
	}
	return s.weight
}

// owner returns the replica whose session holds the slot and, as far as this session has observed, lives; "" if there is none.
func (r *Session) owner(s *slot) string {
	if !s.genuine || r.others.Peer(s.replica).Session != s.holder {
		return ""
	}
	return s.replica
}

// isAcquirable reports whether nothing prevents the assigned replica from acquiring the slot, as far as this session has observed.
func (r *Session) isAcquirable(now member.Moment, s *slot) bool {
	if !s.genuine || !r.looksDead(now, s, s.holder) {
		return false
	}
	if len(s.quarantine) == 0 {
		return true
	}
	if end := s.listed.Add(r.settings.Config.TakeOver); now.Since(end) < 0 {
		r.laterFor(s, end)
		return false
	}
	for _, session := range s.quarantine {
		if !r.confirmed(s, session) && !r.looksDead(now, s, session) {
			return false
		}
	}
	return true
}

// looksDead reports whether a session that a slot Lease names is dead, as far as this session has observed; true if it names
// none.
func (r *Session) looksDead(now member.Moment, s *slot, session string) bool {
	at, dead := r.others.Death(now, session)
	if now.Since(at) < 0 {
		r.laterFor(s, at)
		return false
	}
	return dead
}

// timeOwnerless records since when a slot that its assigned replica could acquire has had no holder.
func (r *Session) timeOwnerless(now member.Moment, s *slot) {
	switch {
	case !r.isAcquirable(now, s):
		s.ownerless, s.candidate = member.Moment{}, ""
	case s.candidate != s.assigned:
		s.ownerless, s.candidate = now, s.assigned
	}
}

// writeAssignments writes an assignment that is decided and not yet written, and removes a home that has expired.
func (r *Session) writeAssignments(now member.Moment, s *slot) {
	if s.target == "" && s.home != "" {
		if until := s.homeSince.Add(r.settings.Assignment.HomeFor); now.Since(until) < 0 {
			r.laterFor(s, until)
		} else {
			s.target = s.assigned
		}
	}
	if s.target == s.assigned && s.targetHome == s.home {
		s.target, s.targetHome = "", ""
	}
	if s.target == "" || s.lease == nil || s.mustRead || !r.maySend(now, s) {
		return
	}
	l := r.written(now, s)
	member.Annotate(l, v1alpha1.AnnotationAssignedReplica, s.target)
	member.Annotate(l, v1alpha1.AnnotationHome, s.targetHome)
	r.sendForSlot(s, member.Request{Verb: member.Update, Lease: l, Need: member.NeedLeadership}, question{})
}

// readWeights parses the weights that a session reports. Entries that cannot be parsed are left out.
func readWeights(text string) map[int]int64 {
	weights := map[int]int64{}
	for entry := range strings.SplitSeq(text, ",") {
		number, value, _ := strings.Cut(entry, ":")
		slot, err := strconv.Atoi(number)
		weight, err2 := strconv.ParseInt(value, 10, 64)
		if err == nil && err2 == nil {
			weights[slot] = weight
		}
	}
	return weights
}
