package protocol

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// Session is one session of one replica: the parts that share what it knows, and the order in which
// they decide. It is not safe for concurrent use.
type Session struct {
	*shared

	activation *activation
	ability    *ability
	table      *table
	proofs     *proofs
	renewal    *renewal
	reporting  *reporting
	holder     *holder
	leader     *leader
	observer   *observer
	exited     bool
}

// shared is the state that the parts of a session share: its settings, the Leases that it knows,
// which slots it has to decide, and what the step returns.
type shared struct {
	settings Settings
	own      *member.Own
	others   *member.Others
	slots    []*slot
	// leavingAt is when the process was asked to end; zero: it was not.
	leavingAt member.Moment
	agenda
	outbox
}

// isLeaving reports whether the session hands over its slots because the process was asked to end.
func (s *shared) isLeaving() bool { return !s.leavingAt.IsZero() }

// NewSession returns a session that has not started. Errors: settings that are not valid.
func NewSession(s Settings) (*Session, error) {
	if s.Capacity == 0 {
		s.Capacity = 1
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	id := member.Identification{
		Fleet: s.Fleet, Namespace: s.Namespace, Replica: s.Replica, Session: s.Session,
		PodUID: s.PodUID, Exclusive: s.Exclusive, Capacity: s.Capacity, Record: Record(s),
	}
	c := &shared{
		settings: s, own: member.NewOwn(s.Config, id), others: member.NewOthers(s.Config, id),
		agenda: newAgenda(s.Slots), outbox: outbox{pending: map[uint64]question{}},
	}
	for number := range s.Slots {
		c.slots = append(c.slots, &slot{number: number, name: member.SlotLeaseName(s.Fleet, number, s.Slots)})
	}
	r := &Session{shared: c, activation: &activation{shared: c}}
	r.ability = &ability{shared: c, activation: r.activation, tried: map[string]member.Service{}, timeouts: map[string]time.Duration{}}
	r.table = &table{
		shared: c, sessions: map[string]*sessionContent{}, confirmations: map[string]map[types.UID]struct{}{}, reports: map[string]report{},
	}
	r.proofs = &proofs{shared: c, table: r.table, sessions: map[string]*proof{}}
	r.reporting = &reporting{shared: c, activation: r.activation, table: r.table}
	r.renewal = &renewal{shared: c, activation: r.activation, ability: r.ability, table: r.table, reporting: r.reporting}
	r.holder = &holder{
		shared:     c,
		activation: r.activation,
		ability:    r.ability,
		table:      r.table,
		proofs:     r.proofs,
		reporting:  r.reporting,
		engaged:    newSlotSet(s.Slots),
	}
	r.leader = &leader{
		shared: c, activation: r.activation, ability: r.ability, creating: newSlotSet(s.Slots), open: newSlotSet(s.Slots),
		assigner: &assigner{shared: c, activation: r.activation, ability: r.ability, table: r.table},
	}
	r.observer = &observer{
		shared: c, activation: r.activation, table: r.table, proofs: r.proofs, holder: r.holder, leader: r.leader,
	}
	return r, nil
}

// NoteUnserved records on the session Lease the last time without a session of the fleet. It is
// called before the first Step.
func (r *Session) NoteUnserved(gap member.Gap) { r.own.NoteUnserved(gap) }

// Step applies an event and returns what to do. now must not be earlier, on the monotonic clock,
// than at the step before.
func (r *Session) Step(now member.Moment, event Event) Output {
	if r.exited {
		return Output{}
	}
	r.steps++
	r.out = Output{}
	// Time is applied before the event, which may have been waiting while the process was stopped.
	_, observed := r.others.Observing()
	r.others.Advance(now)
	r.activation.suspend(now)
	r.handle(now, event)
	r.table.applyNews()
	r.observer.forget(now)
	_, observing := r.others.Observing()
	r.dirty = r.dirty || observing != observed
	r.ability.observeBlindness(now)
	if r.out.Exit == nil {
		r.decide(now)
	}
	if r.out.Exit != nil {
		r.exited = true
		return Output{Exit: r.out.Exit, Changes: r.out.Changes}
	}
	r.out.WakeAt = member.Earliest(r.wake, r.nextDue(now), r.own.WakeAt(), r.activation.wakeAt(), r.ability.blindWake())
	return r.out
}

// handle records the event.
func (r *Session) handle(now member.Moment, event Event) {
	switch e := event.(type) {
	case Listed:
		r.observer.checkRestore(e.Leases)
		r.observer.observeList(now, e.Leases, 0)
	case Seen:
		r.observer.observeLease(now, e.Lease, 0)
	case Gone:
		r.observer.observeDeletion(now, e.Lease)
	case Replied:
		r.handleReply(now, e.Reply)
	case Idle:
		r.handleIdle(e)
	case Weighed:
		r.reporting.weigh(e)
	case Leaving:
		r.renewal.leave(now)
	case Opened:
		r.ability.handleOpened(now, e)
	case Watched:
		r.ability.broken, r.dirty = e.Broken, true
	case Compared:
		r.renewal.handleAccounts(e)
	case Elected:
		r.leader.lead(true)
	case Deposed:
		r.leader.lead(false)
	case Started, Woke:
	}
}

// decide derives what to do from everything that is known.
func (r *Session) decide(now member.Moment) {
	if reason := r.own.Lost(); reason != "" {
		r.exit(Exit{Reason: ReasonLost, Message: reason + "; start a new session"})
		return
	}
	if empty, left := r.own.Left(); left {
		exit := Exit{Reason: ReasonLeft, Message: "the session has left", Empty: empty}
		if r.activation.stuck != "" {
			exit.Reason, exit.Message = ReasonUnfit, r.activation.stuck
		}
		r.exit(exit)
		return
	}
	r.activation.activate(now)
	r.touchDue(now)
	r.decideSlots(now)
	if r.dirty || !r.wake.IsZero() && now.Reached(r.wake) {
		r.dirty, r.wake = false, member.Moment{}
		r.leader.decide(now)
		r.decideLeave(now)
		r.renewal.reportFitnessNow(now)
		r.decideSlots(now) // those that the leader has assigned, and those of a session whose fitness has changed
	}
	if r.own.IsDue(now) {
		r.renewal.write(now)
		r.reporting.write(now)
	}
	if request, ok := r.own.Next(now); ok {
		if request.Verb != member.Get {
			r.others.Renewing(now, r.own.RenewTime())
		}
		r.send(request, question{about: aboutOwn})
	}
}

// Fence returns the moment after which the session may start nothing; the zero Moment if it may not
// now.
func (r *Session) Fence() member.Moment {
	if r.Suspended() {
		return member.Moment{}
	}
	fence, _ := r.own.Fence()
	return fence
}

// Suspended reports whether nothing may be started: the session does not hold its Lease, its fence
// has passed, it has not read its slot Leases since, or it has emptied its Lease.
func (r *Session) Suspended() bool {
	_, holds := r.own.Fence()
	return r.exited || !holds || r.activation.activity != active
}

// Entitled reports whether the session holds the slot and may start effects for it before Fence,
// and under which epoch. A slot that is handed over stays entitled until it is cancelled or
// released, for what is in flight.
func (r *Session) Entitled(slot int) (epoch int64, ok bool) {
	if r.Suspended() || slot < 0 || slot >= len(r.slots) {
		return 0, false
	}
	s := r.slots[slot]
	return s.epoch, s.phase == held || s.phase == stopping
}

// decideSlots decides the slots that were touched, and those that were blocked as long as more
// requests may be in flight.
func (r *Session) decideSlots(now member.Moment) {
	for number := r.nextSlot(0, r.hasRoom()); number >= 0; number = r.nextSlot(number+1, r.hasRoom()) {
		s := r.slots[number]
		r.touched.set(number, false)
		r.blocked.set(number, false)
		r.dues[number] = never
		r.out.Slots = append(r.out.Slots, number)
		r.decideSlot(now, s)
		r.holder.engaged.set(number, s.phase != free || s.busy || s.pending || s.mustRead || len(s.attempts) > 0)
	}
}

// decideSlot decides the next step for a slot.
func (r *Session) decideSlot(now member.Moment, s *slot) {
	if r.holder.expired(now, s) || r.activation.activity != active {
		return
	}
	r.holder.decideSlot(now, s)
	if r.leader.leads {
		r.leader.decideSlot(now, s)
	}
}

// decideLeave empties the session Lease when no slot is held and nothing is in flight.
func (r *Session) decideLeave(now member.Moment) {
	r.activation.stopWhenIdle(now)
	if r.isLeaving() && r.holder.engaged.isEmpty() {
		r.own.Release(now)
	}
}

// handleReply applies the answer to a request of ours. Any other answer is ignored.
func (r *Session) handleReply(now member.Moment, reply member.Reply) {
	q, ok := r.answered(reply.ID)
	if !ok {
		return
	}
	r.dirty = r.dirty || q.about != aboutOwn && q.about != aboutReport
	if q.leads && (q.verb == member.Create || q.verb == member.Update) {
		r.leader.recordWrite(now, q.name, reply.Outcome)
	}
	switch q.about {
	case aboutOwn:
		if q.verb != member.Get && (reply.Outcome == member.Unanswered || reply.Outcome == member.Refused) {
			r.others.Interrupt()
		}
		if q.verb != member.Get && reply.Outcome == member.Done {
			r.others.Acknowledged(now)
		}
		r.own.Replied(now, reply)
	case aboutReread:
		r.handleReread(now, q, reply)
	case aboutSlot:
		r.holder.handleSlotReply(now, q, reply)
	case aboutProof:
		r.proofs.handleProof(now, q, reply)
	case aboutDeath:
		r.leader.handleDeath(now, q, reply)
	case aboutCensus:
		r.leader.handleCensus(now, q, reply)
	case aboutReport:
		r.reporting.handle(now, reply)
	case aboutRestore:
		r.observer.handleRestore(now, q, reply)
	}
}

// handleReread applies the list of all Leases that is read before the session acts (again).
func (r *Session) handleReread(now member.Moment, q question, reply member.Reply) {
	if r.activation.hasRead(now, q, reply.Outcome) {
		r.observer.observeList(now, reply.Leases, q.step)
		r.activation.begin()
		r.holder.resume(now)
	}
}

// handleIdle records that what a change has ended is not in flight any more. An answer to an
// earlier change is ignored: something may have been started in between.
func (r *Session) handleIdle(e Idle) {
	switch {
	case e.Slot == Everything:
		if e.Ticket == r.activation.restless {
			r.activation.restless = 0
		}
	case e.Slot >= 0 && e.Slot < len(r.slots):
		if s := r.slots[e.Slot]; s.busy && s.phase != held && s.ticket == e.Ticket {
			s.busy = false
			r.touch(s)
		}
	}
}

// Fitness returns what the session reports that it can do.
func (r *Session) Fitness() member.Fitness { return r.ability.report }

// Unreached returns the classes of the accounts that do not answer this session and answer another
// one.
func (r *Session) Unreached() []string {
	return r.table.unreached(r.others.Peers())[r.settings.Replica]
}

// MayLead reports whether the session may stand for election and continue to lead: it observes, and
// when it last led it could list the sessions and write Leases. A session that leaves continues to
// lead, and does not stand for election, because it would soon be over.
func (r *Session) MayLead(now member.Moment) bool {
	return !r.ability.blind && now.Reached(r.leader.resigned) && (r.leader.leads || !r.isLeaving())
}
