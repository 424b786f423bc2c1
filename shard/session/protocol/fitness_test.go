package protocol

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// reports asserts what the session Lease reports of its session.
func (s *stage) reports(acts, observes bool, serves member.Service) {
	s.t.Helper()
	got, err := member.ParseFitness(s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationFitness])
	if err != nil || got.Acts != acts || got.Observes != observes || got.ServiceOf(DefaultTarget) != serves {
		s.t.Fatalf("at %v: want acts %v, observes %v, %s; got %+v, %v", s.now, acts, observes, serves, got, err)
	}
	if got.IsFit() != (got.Reason == "") || got.IsFit() != got.Since.IsZero() {
		s.t.Errorf("want a reason and a time if and only if the session is unfit, got %+v", got)
	}
}

// heldFor returns for how much of a duration a slot has a holder.
func (s *stage) heldFor(name string, d time.Duration) (held time.Duration) {
	s.t.Helper()
	const tick = 100 * time.Millisecond
	for end := s.now + d; s.now < end; {
		s.run(tick)
		if member.Holder(s.leases[name]) != "" {
			held += tick
		}
	}
	return held
}

func TestASlotThatDoesNotOpenIsReleased(t *testing.T) {
	s := newStage(t, 8)
	s.stuck[0] = true
	name := s.slot(0, "", "r-0")
	s.reports(true, true, member.Untried)
	s.run(29 * time.Second)
	s.expectHolder(name, me)
	s.run(2 * time.Second)
	s.expectHolder(name, "")
	s.reports(true, true, member.Failing)

	// It stays assigned to this replica: the session tries again, after 30 s, 60 s, 2 min and so on,
	// for twice as long as before.
	tries := 30 * time.Second
	for _, seconds := range []int{30, 60, 120, 240, 480, 960, 960} {
		rest := time.Duration(seconds) * time.Second
		tries = min(2*tries, 16*time.Minute)
		if free := s.while(name, ""); free < rest-3*time.Second || free > rest+time.Second {
			t.Errorf("it leaves the slot alone for %v, want some %v", free, rest)
		}
		if tried := s.while(name, me); tried < tries-time.Second || tried > tries+2*time.Second {
			t.Errorf("it tries for %v, want some %v", tried, tries)
		}
	}
	s.while(name, "")
	s.stuck[0] = false
	s.step(Opened{Slot: 0, Epoch: member.Transitions(s.leases[name])})
	s.reports(true, true, member.Serving)
	s.run(time.Hour)
	s.expectHolder(name, me)
}

// Where lists are slow a slot may take twice as long to open as the last one did; where they are
// fast again, as long as at first.
func TestASlotMayTakeTwiceAsLongAsTheLastOne(t *testing.T) {
	for _, test := range []struct{ took, most time.Duration }{
		{time.Second, 30 * time.Second}, {15 * time.Second, 30 * time.Second}, {28 * time.Second, 56 * time.Second},
	} {
		s := newStage(t, 8)
		s.stuck[0], s.stuck[1] = true, true
		first := s.slot(0, "", "r-0")
		s.while(first, "")
		epoch := member.Transitions(s.leases[first])
		s.run(test.took)
		s.step(Opened{Slot: 0, Epoch: epoch})
		second := s.slot(1, "", "r-0")
		s.while(second, "")
		if tried := s.while(second, me); tried < test.most-2*time.Second || tried > test.most+2*time.Second {
			t.Errorf("a slot took %v: the next one may take %v, want some %v", test.took, tried, test.most)
		}
	}
}

// while runs as long as a Lease has a holder, and returns for how long it had.
func (s *stage) while(name, holder string) time.Duration {
	s.t.Helper()
	since := s.now
	for member.Holder(s.leases[name]) == holder && s.now-since < time.Hour {
		s.run(100 * time.Millisecond)
	}
	return s.now - since
}

func TestTheDeadlineToOpenStartsAgainAfterASuspension(t *testing.T) {
	s := newStage(t, 8)
	s.stuck[0] = true
	name := s.slot(0, "", "r-0")
	s.run(20 * time.Second)
	s.fate = func(member.Request) (member.Outcome, bool) { return member.Unanswered, false }
	s.run(20 * time.Second)
	s.fate = nil
	s.run(25 * time.Second)
	s.expectHolder(name, me)
	s.run(10 * time.Second)
	s.expectHolder(name, "")
}

// Another assigned replica gets the slot at once. When the slot is assigned to it again, the
// session tries it again only after the back-off.
func TestASlotThatDoesNotOpenCanBeAcquiredByAnotherReplica(t *testing.T) {
	s := newStage(t, 8)
	s.stuck[0] = true
	name := s.slot(0, "", "r-0")
	s.run(31 * time.Second)
	s.expectHolder(name, "")
	s.write(name, func(l *coordinationv1.Lease) { assign("r-1")(l); heldBy(another)(l) })
	s.run(10 * time.Second)
	s.write(name, func(l *coordinationv1.Lease) { assign("r-0")(l); heldBy("")(l) })
	s.run(15 * time.Second)
	s.expectHolder(name, "")
	s.run(10 * time.Second)
	s.expectHolder(name, me)
}

func TestAnOpeningOfAnEarlierEpochIsIgnored(t *testing.T) {
	s := newStage(t, 8)
	s.stuck[0] = true
	name := s.slot(0, "", "r-0")
	for _, e := range []Opened{{Slot: 0, Epoch: 0}, {Slot: 0, Epoch: 2}, {Slot: 1, Epoch: 0}, {Slot: -1}, {Slot: 8}} {
		s.step(e)
	}
	s.reports(true, true, member.Untried)
	s.run(31 * time.Second)
	s.expectHolder(name, "")
}

func TestABlindSessionReleasesItsSlots(t *testing.T) {
	s := newStage(t, 8)
	name := s.slot(0, "", "r-0")
	s.run(time.Minute)
	s.expectHolder(name, me)
	s.blind = true
	s.run(14 * time.Second)
	s.expectHolder(name, me)
	s.reports(true, true, member.Serving)
	s.run(4 * time.Second)
	s.expectHolder(name, "")
	s.reports(true, false, member.Serving)
	if held := s.heldFor(name, time.Minute); held > 0 {
		t.Errorf("it holds the slot for %v of a minute in which it sees nothing", held)
	}
	s.blind = false
	s.run(5 * time.Second)
	s.expectHolder(name, me)
	s.reports(true, true, member.Serving)
}

// A blind session does not resume its slots because a renewal has failed.
func TestASessionStaysBlindUntilARenewalIsObserved(t *testing.T) {
	for _, outcome := range []member.Outcome{member.Unanswered, member.Refused} {
		s, name := stageThatHolds(t)
		s.idle, s.blind = false, true
		s.run(18 * time.Second)
		s.reports(true, false, member.Serving)
		s.reported = nil
		failed := false
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if !failed && r.Verb == member.Update && r.Name == "fleet-session-r-0" {
				failed = true
				return outcome, false
			}
			return member.Done, true
		}
		s.run(4 * time.Second)
		if !failed {
			t.Fatal("no renewal has failed")
		}
		s.changes()
		s.reports(true, false, member.Serving)
		s.fate, s.blind = nil, false
		s.run(2 * time.Second)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Resumed})
		s.expectHolder(name, me)
	}
}

// Its watch shows nothing because the API server is unavailable, and the session is suspended for
// that reason. It is not blind when the server is available again.
func TestASessionIsNotBlindBecauseTheServerWasUnavailable(t *testing.T) {
	for _, away := range []time.Duration{6 * time.Second, 14 * time.Second, 16 * time.Second, time.Minute} {
		s := newStage(t, 8)
		name := s.slot(0, "", "r-0")
		s.run(time.Minute)
		s.fate = func(member.Request) (member.Outcome, bool) { return member.Unanswered, false }
		s.run(away)
		s.fate, s.blind = nil, true // the watch is restored some seconds after the renewals
		s.run(5 * time.Second)
		s.blind = false
		s.run(time.Second)
		s.expectHolder(name, me)
		if epoch := member.Transitions(s.leases[name]); epoch != 1 {
			t.Errorf("away for %v: the slot has changed hands, and its epoch is %d", away, epoch)
		}
	}
}

func TestASessionThatCannotListEmptiesItsLease(t *testing.T) {
	s := newStage(t, 8)
	name := s.slot(0, "", "r-0")
	s.run(time.Minute)
	s.fate = func(member.Request) (member.Outcome, bool) { return member.Unanswered, false }
	s.run(12 * time.Second) // it is suspended
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.List {
			return member.Unanswered, false
		}
		return member.Done, false
	}
	s.run(3 * time.Second)
	s.reports(false, true, member.Serving)
	s.run(11 * time.Second)
	s.expectHolder(name, me)
	s.run(5 * time.Second)
	s.exits(ReasonUnfit, true)
	s.expectHolder("fleet-session-r-0", "")
}

// What is in flight cannot be ended, so the Lease stays: by the time that another session may take
// it, everything has ended.
func TestASessionThatCannotListAndHasSomethingInFlightKeepsItsLease(t *testing.T) {
	s := newStage(t, 8)
	s.slot(0, "", "r-0")
	s.run(time.Minute)
	s.idle = false
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if s.now < 70*time.Second+100*time.Millisecond || r.Verb == member.List {
			return member.Unanswered, false
		}
		return member.Done, false
	}
	s.run(30 * time.Second)
	s.exits(ReasonInFlight, false)
	s.expectHolder("fleet-session-r-0", me)
}

func TestASessionThatCannotReleaseASlotEmptiesItsLease(t *testing.T) {
	for _, outcome := range []member.Outcome{member.Unanswered, member.Refused} {
		s := newStage(t, 8)
		name, other := s.slot(0, "", "r-0"), s.slot(1, "", "r-0")
		s.run(time.Minute)
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Verb == member.Update && (r.Name == name || r.Name == other) {
				return outcome, false
			}
			return member.Done, false
		}
		s.write(name, assign("r-1"))
		s.run(14 * time.Second)
		s.expectHolder(name, me)
		s.entitled(1, true)
		if s.exit != nil {
			t.Fatalf("%s: ended too early: %v", outcome, s.exit)
		}
		s.idle = false // something is in flight of the other slot
		s.run(5 * time.Second)
		if s.exit != nil {
			t.Fatalf("%s: ended with something in flight: %v", outcome, s.exit)
		}
		s.step(Idle{Slot: 1, Ticket: s.reported[len(s.reported)-1].Ticket})
		s.run(2 * time.Second)
		s.exits(ReasonUnfit, true)
		s.expectHolder("fleet-session-r-0", "")
	}
}

// A session that has given up, and is suspended while something is still in flight, empties its
// Lease with its next renewal, although it cannot list.
func TestASuspendedSessionThatHasStoppedEmptiesItsLease(t *testing.T) {
	s := newStage(t, 8)
	name, other := s.slot(0, "", "r-0"), s.slot(1, "", "r-0")
	s.run(time.Minute)
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.Update && (r.Name == name || r.Name == other) {
			return member.Refused, false
		}
		return member.Done, false
	}
	s.write(name, assign("r-1"))
	s.run(14 * time.Second)
	s.idle = false
	s.run(2 * time.Second) // something is in flight of the other slot
	s.fate = func(member.Request) (member.Outcome, bool) { return member.Unanswered, false }
	suspended := func(c Change) bool { return c.Kind == Suspended }
	for !slices.ContainsFunc(s.reported, suspended) {
		s.run(100 * time.Millisecond)
	}
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.List {
			return member.Unanswered, false
		}
		return member.Done, false
	}
	s.run(1500 * time.Millisecond)
	s.expectHolder("fleet-session-r-0", me)
	if s.exit != nil || s.replica.activation.activity != reading {
		t.Fatalf("want a session that renews again and cannot list; ended: %v", s.exit)
	}
	s.step(Idle{Slot: Everything, Ticket: s.reported[slices.IndexFunc(s.reported, suspended)].Ticket})
	s.run(time.Second)
	s.exits(ReasonUnfit, true)
	s.expectHolder("fleet-session-r-0", "")
	if !strings.Contains(s.exit.Message, "slot 0") {
		t.Errorf("want the reason why it stopped, got %q", s.exit.Message)
	}
}

func TestTheDeadlineOfAReleaseStartsAgainAfterASuspensionAndAReversal(t *testing.T) {
	s := newStage(t, 8)
	name := s.slot(0, "", "r-0")
	s.run(time.Minute)
	refuse := func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.Update && r.Name == name {
			return member.Refused, false
		}
		return member.Done, false
	}
	s.fate = refuse
	s.write(name, assign("r-1"))
	s.run(12 * time.Second)
	s.write(name, assign("r-0"))
	s.run(time.Second)
	s.write(name, assign("r-1"))
	s.run(4 * time.Second)
	s.fate = func(member.Request) (member.Outcome, bool) { return member.Unanswered, false }
	s.run(20 * time.Second)
	s.fate = refuse
	s.run(10 * time.Second)
	if s.exit != nil {
		t.Fatalf("ended: %v", s.exit)
	}
	s.run(10 * time.Second)
	s.exits(ReasonUnfit, true)
}

func TestALeaderThatCannotWriteSlotLeasesResigns(t *testing.T) {
	for _, outcome := range []member.Outcome{member.Unanswered, member.Refused} {
		for _, several := range []bool{true, false} {
			const after = 15 * time.Second
			s := leads(t)
			s.run(20 * time.Second)
			s.fate = func(r member.Request) (member.Outcome, bool) {
				if r.Need == member.NeedLeadership && r.Verb != member.List {
					return outcome, false
				}
				return member.Done, false
			}
			s.remove(member.SlotLeaseName("fleet", 3, 8))
			if several {
				s.remove(member.SlotLeaseName("fleet", 4, 8))
			}
			s.run(after - 2*time.Second)
			if !s.replica.MayLead(at(s.now)) {
				t.Errorf("%s, several %v: it resigns too early", outcome, several)
			}
			s.run(4 * time.Second)
			if s.replica.MayLead(at(s.now)) {
				t.Errorf("%s, several %v: it may lead after %v", outcome, several, after)
			}
		}
	}
}

func TestWatchesThatAreBrokenAreReported(t *testing.T) {
	s := newStage(t, 8)
	name := s.slot(0, "", "r-0")
	s.reports(true, true, member.Serving)
	s.step(Watched{Broken: map[string]string{DefaultTarget: "Nodes are not delivered"}})
	s.reports(true, true, member.Failing)
	s.run(time.Hour) // whether another replica can serve the target is decided by the leader
	s.expectHolder(name, me)
	s.step(Watched{})
	s.reports(true, true, member.Serving)
}

func TestAReportIsWrittenOnce(t *testing.T) {
	s := newStage(t, 8)
	s.slot(0, "", "r-0")
	s.run(10 * time.Second)
	s.step(Watched{Broken: map[string]string{DefaultTarget: "Nodes are not delivered"}})
	version := s.version
	s.run(20 * time.Second)
	if writes := s.version - version; writes > 10 {
		t.Errorf("%d writes in 20 s, want the renewals only", writes)
	}
}

func TestABlindSessionMayNotLead(t *testing.T) {
	s := leads(t)
	s.run(20 * time.Second)
	if !s.replica.MayLead(at(s.now)) {
		t.Fatal("a leader that sees everything may not lead")
	}
	s.blind = true
	s.run(14 * time.Second)
	if !s.replica.MayLead(at(s.now)) {
		t.Error("want it to resign after 15 s, got it earlier")
	}
	s.run(4 * time.Second)
	if s.replica.MayLead(at(s.now)) {
		t.Error("want a blind session not to lead")
	}
	s.blind = false
	s.run(3 * time.Second)
	if !s.replica.MayLead(at(s.now)) {
		t.Error("want a session that observes again to be a candidate")
	}
}

// A slot Lease is new, so the leader has to list the sessions.
func TestALeaderThatCannotListResigns(t *testing.T) {
	s := leads(t)
	s.run(20 * time.Second)
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.List {
			return member.Unanswered, false
		}
		return member.Done, false
	}
	s.remove(member.SlotLeaseName("fleet", 3, 8))
	s.run(14 * time.Second)
	if !s.replica.MayLead(at(s.now)) {
		t.Error("it resigns too early")
	}
	s.run(3 * time.Second)
	if s.replica.MayLead(at(s.now)) {
		t.Error("it cannot list for 17 s, and may lead")
	}
	s.step(Deposed{})
	s.run(50 * time.Second)
	if s.replica.MayLead(at(s.now)) {
		t.Error("it is a candidate again at once")
	}
	s.run(15 * time.Second)
	if !s.replica.MayLead(at(s.now)) {
		t.Error("it is no candidate any more")
	}
}
