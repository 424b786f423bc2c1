package protocol

import (
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
)

// Settings are the identity of a replica and the settings that its fleet was installed with.
type Settings struct {
	// Config has the durations.
	Config member.Config
	// Assignment has the durations and limits of assigning slots.
	Assignment assignment.Config
	// Fleet is the fleet's name, the prefix of all its Leases.
	Fleet string
	// Namespace is the namespace of the Leases.
	Namespace string
	// Replica is the replica's name.
	Replica string
	// Session is the session's identity: member.Identity(Replica, 5 random characters).
	Session string
	// PodUID is the UID of the pod that the process runs in; empty if it is not known.
	PodUID string
	// Exclusive is true if the process holds the exclusive file lock in the pod's own volume.
	Exclusive bool
	// Capacity is how much the replica wants to hold in relation to others. Default 1.
	Capacity float64
	// Slots is the number of slots.
	Slots int
	// ShardBy is the part of a root's key that decides its slot: "deployment" or "namespace".
	ShardBy string
	// RingVersion is the version of the hash and the consistent-hash table.
	RingVersion string
}

// Validate returns all errors of the settings.
func (s Settings) Validate() error {
	errs := []error{s.Config.Validate(), s.Assignment.Validate()}
	if replica, ok := member.ReplicaOf(s.Session); !ok || replica != s.Replica {
		errs = append(errs, fmt.Errorf("session: expected %s, an underscore and 5 random lower-case letters and digits, got %q", s.Replica, s.Session))
	}
	if s.Fleet == "" || s.Namespace == "" {
		errs = append(errs, fmt.Errorf("expected a fleet and a namespace, got %q and %q", s.Fleet, s.Namespace))
	}
	if s.Slots < 1 || s.Slots > ring.MaxSlots {
		errs = append(errs, fmt.Errorf("slots: expected 1 to %d, got %d", ring.MaxSlots, s.Slots))
	}
	if s.Capacity < 0 {
		errs = append(errs, fmt.Errorf("capacity: expected more than 0, or 0 for the default of 1, got %v", s.Capacity))
	}
	return errors.Join(errs...)
}

// Session is one session of one replica. It is not safe for concurrent use.
type Session struct {
	settings Settings
	own      *member.Own
	others   *member.Others
	slots    []*slot
	steps    uint64
	out      Output
	wake     member.Moment
	dirty    bool
	exited   bool

	nextID  uint64
	pending map[uint64]question
	inUse   int // requests for slot Leases that are not answered
	// lastTime is the last timestamp that we wrote into a slot Lease.
	lastTime time.Time
	tickets  uint64

	activation
	ability
	// restoring is true while a list is requested because etcd may have been restored.
	restoring bool

	// reportedAccounts is what the session reports about accounts at clouds.
	reportedAccounts member.Accounts

	weights   map[int]int64
	counts    *string
	weighedAt member.Moment
	notes     member.Notes
	leavingAt member.Moment
	proofs    map[string]*proof
	// words are the contents of the session Leases, by replica; confirmations are the slot Leases that sessions have confirmed.
	words         map[string]*words
	confirmations map[string]map[types.UID]struct{}
	// forgetAt is the number of remembered sessions and replicas from which on forget removes what is not needed.
	forgetAt int
	agenda
	leader
}

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
	r := &Session{
		settings: s, own: member.NewOwn(s.Config, id), others: member.NewOthers(s.Config, id),
		pending: map[uint64]question{}, proofs: map[string]*proof{}, weights: map[int]int64{}, dirty: true,
		words: map[string]*words{}, confirmations: map[string]map[types.UID]struct{}{}, agenda: newAgenda(s.Slots),
		ability: ability{tried: map[string]member.Service{}, patience: map[string]time.Duration{}},
	}
	for number := range s.Slots {
		r.slots = append(r.slots, &slot{number: number, name: member.SlotLeaseName(s.Fleet, number, s.Slots)})
	}
	return r, nil
}

// NoteUnserved records on the session Lease the last time without a session of the fleet. It is called before the first Step.
func (r *Session) NoteUnserved(gap member.Gap) { r.own.NoteUnserved(gap) }

// Step applies an event and returns what to do. now must not be earlier, on the monotonic clock, than at the step before.
func (r *Session) Step(now member.Moment, event Event) Output {
	if r.exited {
		return Output{}
	}
	r.steps++
	r.out = Output{}
	// Time is applied before the event, which may have been waiting while the process was stopped.
	_, observed := r.others.Observing()
	r.others.Advance(now)
	r.suspend(now)
	r.handle(now, event)
	r.applyNews()
	r.forget(now)
	_, observing := r.others.Observing()
	r.dirty = r.dirty || observing != observed
	r.look(now)
	if r.out.Exit == nil {
		r.decide(now)
	}
	if r.out.Exit != nil {
		r.exited = true
		return Output{Exit: r.out.Exit, Changes: r.out.Changes}
	}
	r.out.WakeAt = member.Earliest(r.wake, r.nextDue(now), r.own.WakeAt(), r.activationWake(), r.blindWake())
	return r.out
}

// handle records the event.
func (r *Session) handle(now member.Moment, event Event) {
	switch e := event.(type) {
	case Listed:
		r.checkRestore(e.Leases)
		r.observeList(now, e.Leases, 0)
	case Seen:
		r.observeLease(now, e.Lease, 0)
	case Gone:
		r.observeDeletion(now, e.Lease)
	case Replied:
		r.handleReply(now, e.Reply)
	case Idle:
		r.handleIdle(e)
	case Weighed:
		r.weights, r.counts, r.dirty = e.Weights, e.Counts, true
	case Leaving:
		if r.leavingAt.IsZero() {
			r.leavingAt, r.notes.Leaving = now, true
			r.own.Note(r.notes)
			r.touchAll()
		}
	case Opened:
		r.handleOpened(now, e)
	case Watched:
		r.broken, r.dirty = e.Broken, true
	case Compared:
		r.handleAccounts(e)
	case Elected:
		r.lead(true)
	case Deposed:
		r.lead(false)
	case Started, Woke:
	}
}

// observeList applies a consistent list: the watch's, or, with the step in which it was requested, one of our own. What is not in it
// does not exist.
func (r *Session) observeList(now member.Moment, leases []*coordinationv1.Lease, requestedAt uint64) {
	there := make(map[string]bool, len(leases))
	for _, l := range leases {
		there[l.Name] = true
		r.observeLease(now, l, requestedAt)
	}
	for _, s := range r.slots {
		if s.lease != nil && !there[s.name] {
			r.observeSlot(now, s, nil, requestedAt)
		}
	}
	for _, p := range r.others.Peers() {
		if !there[member.SessionLeaseName(r.settings.Fleet, p.Replica)] {
			r.others.Missed(now, p.Replica)
		}
	}
	r.dirty = true
}

// observeLease applies a version of any Lease of the fleet. The renewal of a session Lease, by far the most frequent event, is not
// examined any further.
func (r *Session) observeLease(now member.Moment, l *coordinationv1.Lease, requestedAt uint64) {
	if number, ok := member.SlotOfLease(r.settings.Fleet, l.Name, r.settings.Slots); ok {
		r.observeSlot(now, r.slots[number], l, requestedAt)
		return
	}
	if !r.acted {
		if err := CheckLease(r.settings, l); err != nil {
			r.exit(Exit{Reason: ReasonMismatch, Message: err.Error()})
			return
		}
	}
	if l.Name == member.LeaderLeaseName(r.settings.Fleet) {
		return
	}
	if requestedAt == 0 {
		r.dirty = r.others.Observe(now, l, true) || r.dirty
	} else {
		r.dirty = r.others.Correct(now, l) || r.dirty
	}
}

// observeDeletion records that a Lease was deleted.
func (r *Session) observeDeletion(now member.Moment, l *coordinationv1.Lease) {
	if number, ok := member.SlotOfLease(r.settings.Fleet, l.Name, r.settings.Slots); ok {
		if s := r.slots[number]; s.lease != nil && s.lease.UID == l.UID {
			r.observeSlot(now, s, nil, 0)
		}
		return
	}
	if replica, ok := member.ReplicaOfLease(r.settings.Fleet, l.Name); ok && r.others.Missed(now, replica) {
		r.dirty = true
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
		if r.stuck != "" {
			exit.Reason, exit.Message = ReasonUnfit, r.stuck
		}
		r.exit(exit)
		return
	}
	r.activate(now)
	r.touchDue(now)
	r.decideSlots(now)
	if r.dirty || !r.wake.IsZero() && now.Reached(r.wake) {
		r.dirty, r.wake = false, member.Moment{}
		r.decideLeader(now)
		r.decideLeave(now)
		r.hurryFitness(now)
		r.decideSlots(now) // those that the leader has assigned, and those of a session whose fitness has changed
	}
	if r.own.IsDue(now) {
		r.writeNotes(now)
	}
	if request, ok := r.own.Next(now); ok {
		if request.Verb != member.Get {
			r.others.Renewing(now, r.own.RenewTime())
		}
		r.send(request, question{about: aboutOwn})
	}
}

// later requests a step at a moment.
func (r *Session) later(at member.Moment) { r.wake = member.Earliest(r.wake, at) }

func (r *Session) exit(e Exit) { r.out.Exit = &e }

// Fence returns the moment after which the session may start nothing; the zero Moment if it may not now.
func (r *Session) Fence() member.Moment {
	if r.Suspended() {
		return member.Moment{}
	}
	fence, _ := r.own.Fence()
	return fence
}

// Suspended reports whether nothing may be started: the session does not hold its Lease, its fence has passed, it has not read
// its slot Leases since, or it has emptied its Lease.
func (r *Session) Suspended() bool {
	_, holds := r.own.Fence()
	return r.exited || !holds || r.activity != active
}

// Entitled reports whether the session holds the slot and may start effects for it before Fence, and under which epoch. A slot
// that is handed over stays entitled until it is cancelled or released, for what is in flight.
func (r *Session) Entitled(slot int) (epoch int64, ok bool) {
	if r.Suspended() || slot < 0 || slot >= len(r.slots) {
		return 0, false
	}
	s := r.slots[slot]
	return s.epoch, s.phase == held || s.phase == stopping
}
