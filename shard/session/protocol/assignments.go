package protocol

import (
	"maps"
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// assigner assigns the slots while this session leads.
type assigner struct {
	*shared

	activation *activation
	ability    *ability
	table      *table
	assignments
}

// assignments is the state of one time as leader.
type assignments struct {
	// doubts are the failures of sessions that live, by their identities.
	doubts map[string]*doubt
	// needs is when slots were last reported to need an account, by the account's key.
	needs map[string]map[int]member.Moment
	// again is the time before which slots are not assigned again, last the last assignment.
	again member.Moment
	last  assignment.Verdict
	// underway are the slots between two replicas that count against mostMoving; waiting are those
	// whose assignment is written when one of them has arrived.
	underway, waiting slotSet
	// surpassed reports whether another session can do what this one cannot: an account answers
	// it, or it is fit.
	surpassed bool
}

const (
	// mostMoving is how many slots at most are between two replicas because of moves that no slot has
	// to wait for. A slot that moves has no holder while a release and an acquisition are written; an
	// API server that is busy answers the requests of all slots that move at once one after the other.
	// Meanwhile the other slots stay where they are worked on.
	mostMoving = 32
	// releasesWithin and acquiresWithin are for how long a slot counts: one whose holder waits for
	// calls of a cloud, or that the next replica does not acquire, delays no other.
	releasesWithin = time.Second
	acquiresWithin = 2 * time.Second
)

// assign assigns slots once the leader has observed for long enough (Warm): before that a dead
// replica could look alive and be assigned slots, and a replica that starts at the same time would
// be ignored.
func (as *assigner) assign(now member.Moment) {
	if !as.others.Warm(now) {
		if since, observing := as.others.Observing(); observing {
			as.later(since.Add(as.settings.Config.TakeOver))
		}
		return
	}
	if now.Since(as.again) < 0 {
		as.later(as.again)
		return
	}
	as.again = now.Add(as.settings.Config.RebalanceEvery)
	as.last = assignment.Assign(as.settings.Assignment, as.world(now))
	for _, move := range as.last.Moves {
		s := as.slots[move.Slot]
		s.target, s.targetHome = move.To, move.Home
		s.mayWait, s.sent = move.MayWait(), member.Moment{}
		as.touch(s)
		if move.Rebalances() {
			s.movedAt = now
		}
		if move.Why == assignment.Unreached {
			s.forAccounts.record(as.settings, now)
		}
		if move.PassOver() {
			if s.passed == nil {
				s.passed = map[string]time.Duration{}
			}
			s.passed[move.From] = now.Monotonic + as.settings.Assignment.PassOverFor
			as.doubtOf(as.others.Peer(move.From).Session).blame(as.settings, now, as.steps)
		}
	}
	if again := as.last.Again; again > now.Monotonic {
		as.later(latest(as.again, now.Add(again-now.Monotonic)))
	}
}

// world returns the input of the assignment.
func (as *assigner) world(now member.Moment) assignment.World {
	w := assignment.World{Now: now.Monotonic, Slots: make([]assignment.Slot, 0, len(as.slots))}
	peers, has := as.others.Peers(), as.possessions()
	as.forgetDoubts(peers)
	as.surpassed = !as.ability.fitness(now).IsFit() && slices.ContainsFunc(peers, func(p member.Peer) bool {
		return p.Session != "" && !p.Leaving && p.Fitness.IsFit()
	})
	for _, peer := range peers {
		leaving := peer.Leaving || peer.Session == as.settings.Session && as.isLeaving()
		if peer.Session == as.settings.Session {
			peer.Fitness = as.ability.fitness(now) // what we have reported may not be visible in the watch yet
		}
		if leaving {
			w.Replicas = append(w.Replicas, assignment.Replica{Name: peer.Replica, Capacity: peer.Capacity, Leaving: true})
		} else if peer.Session != "" {
			limit, again := as.doubtOf(peer.Session).limit(as.settings, now, as.steps, peer.Fitness, DefaultTarget, has[peer.Replica])
			as.later(again)
			w.Replicas = append(w.Replicas, assignment.Replica{
				Name: peer.Replica, Capacity: peer.Capacity, Limits: map[string]assignment.Limit{DefaultTarget: limit},
			})
		}
	}
	w.Accounts = as.worldAccounts(now, peers)
	for _, s := range as.slots {
		as.table.remember(s)
		maps.DeleteFunc(s.passed, func(_ string, until time.Duration) bool { return until <= now.Monotonic })
		one := assignment.Slot{
			Target: s.cluster(), Weight: as.table.weighs(s), Holder: as.table.owner(s), Assigned: s.assigned, Home: s.home,
			UnownedSince: s.ownerless.Monotonic, Moved: s.movedAt.Monotonic, Passed: s.passed,
			MovedForAccount: s.forAccounts.last.Monotonic, StaysUntil: s.forAccounts.blocked.Monotonic,
		}
		if s.target != "" {
			one.Assigned, one.Home = s.target, s.targetHome
		}
		if one.Home != "" {
			one.HomeUntil = s.homeSince.Add(as.settings.Assignment.HomeFor).Monotonic
			if s.home != one.Home {
				one.HomeUntil = now.Add(as.settings.Assignment.HomeFor).Monotonic
			}
		}
		w.Slots = append(w.Slots, one)
	}
	return w
}

// possessions returns how many slots are assigned to each replica and what it holds.
func (as *assigner) possessions() map[string]possession {
	all := map[string]possession{}
	for _, s := range as.slots {
		has := all[s.assigned]
		has.assigned++
		all[s.assigned] = has
		if owner := as.table.owner(s); owner != "" {
			has := all[owner]
			has.holds, has.acquired = true, max(has.acquired, s.holderStep)
			all[owner] = has
		}
	}
	return all
}

// isAcquirable reports whether nothing prevents the assigned replica from acquiring the slot, as
// far as this session has observed.
func (as *assigner) isAcquirable(now member.Moment, s *slot) bool {
	if !s.genuine || !as.looksDead(now, s, s.holder) {
		return false
	}
	if len(s.quarantine) == 0 {
		return true
	}
	if end := s.listed.Add(as.settings.Config.TakeOver); now.Since(end) < 0 {
		as.laterFor(s, end)
		return false
	}
	for _, session := range s.quarantine {
		if !as.table.confirmed(s, session) && !as.looksDead(now, s, session) {
			return false
		}
	}
	return true
}

// looksDead reports whether a session that a slot Lease names is dead, as far as this session has
// observed; true if it names none.
func (as *assigner) looksDead(now member.Moment, s *slot, session string) bool {
	at, dead := as.others.Death(now, session)
	if now.Since(at) < 0 {
		as.laterFor(s, at)
		return false
	}
	return dead
}

// timeOwnerless records since when a slot that its assigned replica could acquire has had no
// holder.
func (as *assigner) timeOwnerless(now member.Moment, s *slot) {
	switch {
	case !as.isAcquirable(now, s):
		s.ownerless, s.candidate = member.Moment{}, ""
	case s.candidate != s.assigned:
		s.ownerless, s.candidate = now, s.assigned
	}
}

// pace records whether a slot is between two replicas, and has the slots that wait decided again
// when there is room for one.
func (as *assigner) pace(now member.Moment, s *slot) {
	until, to := member.Moment{}, s.assigned
	if s.target != "" && !s.sent.IsZero() {
		to = s.target // it is being written
	}
	switch {
	case to == "" || s.replica == to:
	case !s.ownerless.IsZero():
		until = s.ownerless.Add(acquiresWithin)
	case !s.sent.IsZero():
		until = s.sent.Add(releasesWithin)
	}
	is := !until.IsZero() && now.Since(until) < 0
	if is {
		as.laterFor(s, until)
	}
	if !is && as.underway.has(s.number) {
		for number := as.waiting.next(0); number >= 0; number = as.waiting.next(number + 1) {
			as.touch(as.slots[number])
		}
	}
	as.underway.set(s.number, is)
}

// mustWait reports whether a slot stays where it is for now: a session that may live holds it, and
// enough others move.
func (as *assigner) mustWait(s *slot) bool {
	return s.mayWait && s.assigned != "" && s.target != s.assigned && s.holder != "" && s.ownerless.IsZero() &&
		as.underway.size() >= mostMoving
}

// write writes an assignment that is decided and not yet written, and removes a home that has
// expired.
func (as *assigner) write(now member.Moment, s *slot) {
	if s.target == "" && s.home != "" {
		if until := s.homeSince.Add(as.settings.Assignment.HomeFor); now.Since(until) < 0 {
			as.laterFor(s, until)
		} else {
			s.target = s.assigned
		}
	}
	if s.target == s.assigned && s.targetHome == s.home {
		s.target, s.targetHome = "", ""
	}
	waits := s.target != "" && as.mustWait(s)
	as.waiting.set(s.number, waits)
	if waits || s.target == "" || s.lease == nil || s.mustRead || !as.activation.maySend(now, s) {
		return
	}
	if s.target != s.assigned && s.mayWait && s.sent.IsZero() {
		s.sent = now
		as.pace(now, s)
	}
	l := as.written(now, s)
	member.Annotate(l, v1alpha1.AnnotationAssignedReplica, s.target)
	member.Annotate(l, v1alpha1.AnnotationHome, s.targetHome)
	as.sendForSlot(s, member.Request{Verb: member.Update, Lease: l, Need: member.NeedLeadership}, question{})
}

// doubtOf returns the record of a session's failures.
func (as *assigner) doubtOf(session string) *doubt {
	d, known := as.doubts[session]
	if !known {
		d = &doubt{}
		as.doubts[session] = d
	}
	return d
}

// forgetDoubts removes the records of sessions that have ended.
func (as *assigner) forgetDoubts(peers []member.Peer) {
	live := map[string]bool{}
	for _, peer := range peers {
		live[peer.Session] = true
	}
	maps.DeleteFunc(as.doubts, func(session string, _ *doubt) bool { return !live[session] })
}

// worldAccounts returns the input of the assignment about accounts, in the order of their keys.
func (as *assigner) worldAccounts(now member.Moment, peers []member.Peer) (accounts []assignment.Account) {
	all := as.table.compareAccounts(peers)
	maps.DeleteFunc(as.needs, func(key string, _ map[int]member.Moment) bool { return all[key] == nil })
	for _, key := range slices.Sorted(maps.Keys(all)) {
		needs := as.needs[key]
		if needs == nil {
			needs = map[int]member.Moment{}
			as.needs[key] = needs
		}
		for _, slot := range all[key].Slots {
			needs[slot] = now
		}
		maps.DeleteFunc(needs, func(_ int, at member.Moment) bool { return now.Since(at) >= needsFor })
		all[key].Slots = slices.Sorted(maps.Keys(needs))
		accounts = append(accounts, *all[key])
		as.surpassed = as.surpassed || all[key].Failing[as.settings.Replica] && len(all[key].Reached) > 0
	}
	return accounts
}
