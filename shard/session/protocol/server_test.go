package protocol

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

const (
	me      = "r-0_aaaaa"
	another = "r-1_bbbbb"
)

func at(d time.Duration) member.Moment {
	return member.Moment{Monotonic: d, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(d)}
}

func settings(slots int) Settings {
	return Settings{
		Config: member.DefaultConfig(), Assignment: assignment.DefaultConfig(), Fleet: "fleet", Namespace: "ns", Replica: "r-0", Session: me,
		Slots: slots, ShardBy: "deployment", RingVersion: "1",
	}
}

// stage is one session with an API server that answers at once, and a watch that shows everything
// at once.
type stage struct {
	t       *testing.T
	replica *Session
	now     time.Duration
	leases  map[string]*coordinationv1.Lease
	version int
	wake    member.Moment
	// reported are the changes since they were last read, asked the requests for slot Leases.
	reported []Change
	exit     *Exit
	// fate, if set, decides the outcome of a request; Done leaves it to the server.
	fate func(member.Request) (outcome member.Outcome, takesEffect bool)
	// live are other sessions, whose Leases are renewed.
	live []string
	// idle answers changes at once, blind hides everything from the watch; stuck are slots that do not
	// open.
	idle, blind bool
	stuck       map[int]bool
	// entitlements are those that the steps have named, by slot.
	entitlements map[int]entitlement
}

func newStage(t *testing.T, slots int) *stage {
	t.Helper()
	replica, err := NewSession(settings(slots))
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{
		t: t, replica: replica, leases: map[string]*coordinationv1.Lease{}, version: 100, now: time.Second, idle: true, stuck: map[int]bool{},
	}
	s.step(Listed{})
	return s
}

// step applies one event and everything that follows from it at once.
func (s *stage) step(event Event) {
	s.t.Helper()
	steps := 0
	for events := []Event{event}; len(events) > 0 && s.exit == nil; events = events[1:] {
		if steps++; steps > 10000 {
			s.t.Fatal("want the replica to wait, but each answer leads to another request at once")
		}
		out := s.replica.Step(at(s.now), events[0])
		s.wake, s.exit = out.WakeAt, out.Exit
		s.names(out)
		s.reported = append(s.reported, out.Changes...)
		for _, change := range out.Changes {
			if change.Kind == Acquired && !s.stuck[change.Slot] {
				events = append(events, Opened{Slot: change.Slot, Epoch: change.Epoch})
			}
			if change.Ticket != 0 && s.idle {
				events = append(events, Idle{Slot: change.Slot, Ticket: change.Ticket})
			}
		}
		for _, request := range out.Requests {
			reply, seen := s.answer(request)
			if reply.Outcome != unanswered {
				events = append(events, Replied{reply})
			}
			if seen != nil && !s.blind {
				events = append(events, Seen{seen})
			}
		}
	}
}

// names asserts that a step names each slot to which the session's entitlement has changed.
func (s *stage) names(out Output) {
	s.t.Helper()
	if s.entitlements == nil {
		s.entitlements = map[int]entitlement{}
	}
	for slot := range len(s.replica.slots) {
		epoch, entitled := s.replica.Entitled(slot)
		now := entitlement{epoch, entitled}
		if before := s.entitlements[slot]; out.Exit == nil && now != before && (now.is || before.is) && !slices.Contains(out.Slots, slot) {
			s.t.Errorf("the entitlement to slot %d has changed from %v to %v, and the step does not name the slot", slot, before, now)
		}
		s.entitlements[slot] = now
	}
}

type entitlement struct {
	epoch int64
	is    bool
}

// answer executes a request.
func (s *stage) answer(request member.Request) (reply member.Reply, seen *coordinationv1.Lease) {
	s.t.Helper()
	reply = member.Reply{ID: request.ID, Sent: at(s.now), Outcome: member.Done}
	if s.fate != nil {
		outcome, takesEffect := s.fate(request)
		if outcome != member.Done {
			if takesEffect {
				_, _, seen = s.serve(request)
			}
			reply.Outcome = outcome
			return reply, seen
		}
	}
	reply.Outcome, reply.Lease, seen = s.serve(request)
	if request.Verb == member.List && reply.Outcome == member.Done {
		reply.Leases = s.all()
	}
	return reply, seen
}

func (s *stage) serve(request member.Request) (outcome member.Outcome, lease, seen *coordinationv1.Lease) {
	s.t.Helper()
	stored := s.leases[request.Name]
	switch {
	case request.Verb == member.List:
		return member.Done, nil, nil
	case request.Verb == member.Create && stored != nil:
		return member.Exists, nil, nil
	case request.Verb != member.Create && stored == nil:
		return member.NotFound, nil, nil
	case request.Verb == member.Get:
		return member.Done, stored, nil
	case request.Verb == member.Update && (request.Lease.UID == "" || request.Lease.ResourceVersion == ""):
		s.t.Errorf("update of %s without UID or resourceVersion", request.Name)
	case request.Verb == member.Update && (request.Lease.UID != stored.UID || request.Lease.ResourceVersion != stored.ResourceVersion):
		return member.Conflict, nil, nil
	}
	l := s.put(request.Lease.DeepCopy())
	return member.Done, l, l
}

// put stores a Lease, as a new one if it has no UID.
func (s *stage) put(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	l.ResourceVersion = strconv.Itoa(s.version)
	if l.UID == "" {
		l.UID = types.UID("uid-" + l.ResourceVersion)
	}
	s.leases[l.Name] = l
	return l
}

func (s *stage) all() (leases []*coordinationv1.Lease) {
	for _, l := range s.leases {
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(a, b *coordinationv1.Lease) int { return len(a.Name) - len(b.Name) })
	return leases
}

// write stores another client's change of a Lease and shows it.
func (s *stage) write(name string, change func(l *coordinationv1.Lease)) {
	s.t.Helper()
	l := &coordinationv1.Lease{}
	l.Name, l.Namespace = name, "ns"
	if stored := s.leases[name]; stored != nil {
		l = stored.DeepCopy()
	}
	change(l)
	s.step(Seen{s.put(l)})
}

// report stores a replica's report, written by a session.
func (s *stage) report(replica, session, weights, counts string) {
	s.t.Helper()
	s.write(member.ReportLeaseName("fleet", replica), func(l *coordinationv1.Lease) {
		heldBy(session)(l)
		member.Annotate(l, v1alpha1.AnnotationWeights, weights)
		member.Annotate(l, v1alpha1.AnnotationCounts, counts)
	})
}

// remove deletes a Lease and shows it.
func (s *stage) remove(name string) {
	s.t.Helper()
	l := s.leases[name]
	delete(s.leases, name)
	s.step(Gone{l})
}

// run advances time by a duration.
func (s *stage) run(d time.Duration) {
	s.t.Helper()
	const tick = 100 * time.Millisecond
	for end := s.now + d; s.now < end && s.exit == nil; {
		s.now += tick
		for _, session := range s.live {
			if s.now%(2*time.Second) == 0 {
				replica, _ := member.ReplicaOf(session)
				s.write(member.SessionLeaseName("fleet", replica), heldBy(session))
			}
		}
		if !s.wake.IsZero() && at(s.now).Reached(s.wake) {
			s.step(Woke{})
		}
	}
}

func heldBy(session string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = nil
		if session != "" {
			l.Spec.HolderIdentity = &session
		}
	}
}

func assign(replica string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationAssignedReplica, replica) }
}

// slot creates a slot Lease that was created long ago.
func (s *stage) slot(number int, session, assigned string) string {
	s.t.Helper()
	name := member.SlotLeaseName("fleet", number, 8)
	l := newLease("fleet", "ns", name)
	l.UID = types.UID("slot-" + strconv.Itoa(number))
	member.Annotate(l, v1alpha1.AnnotationLeaseUID, string(l.UID))
	assign(assigned)(l)
	heldBy(session)(l)
	s.step(Seen{s.put(l)})
	return name
}

// changes asserts the changes since the last call.
func (s *stage) changes(want ...Change) {
	s.t.Helper()
	got := slices.Clone(s.reported)
	s.reported = nil
	for i := range got {
		got[i].Ticket = 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Fatalf("changes (want -, got +):\n%s", diff)
	}
}

func (s *stage) entitled(slot int, want bool) {
	s.t.Helper()
	if _, ok := s.replica.Entitled(slot); ok != want {
		s.t.Fatalf("entitled to slot %d: want %v, got %v", slot, want, ok)
	}
}

func (s *stage) expectHolder(name, want string) {
	s.t.Helper()
	if got := member.Holder(s.leases[name]); got != want {
		s.t.Fatalf("%s: want holder %q, got %q", name, want, got)
	}
}

func (s *stage) exits(want Reason, empty bool) {
	s.t.Helper()
	if s.exit == nil || s.exit.Reason != want || s.exit.Empty != empty {
		s.t.Fatalf("want exit %s (empty %v), got %+v", want, empty, s.exit)
	}
	if s.replica.Entitled(0); !s.replica.Suspended() || !s.replica.Fence().IsZero() {
		s.t.Error("want the session suspended after the exit")
	}
}
