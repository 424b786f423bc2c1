package protocol

import (
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestFitnessReportsReasonAndBeginOfFailure(t *testing.T) {
	s := newStage(t, 8)
	s.slot(0, "", "r-0")
	s.run(10 * time.Second)
	s.step(Watched{Broken: map[string]string{DefaultTarget: "Nodes are not delivered"}})
	since := at(s.now).Wall.Truncate(time.Second)
	s.run(10 * time.Second)
	s.step(Watched{Broken: map[string]string{DefaultTarget: "Machines are not delivered"}})
	s.run(3 * time.Second)
	got, err := member.ParseFitness(s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationFitness])
	if err != nil || got.Reason != "Machines are not delivered" || !got.Since.Equal(since) {
		t.Errorf("want the reason of now since %v, got %+v, %v", since, got, err)
	}
	if own := s.replica.Fitness(); own.String() != got.String() {
		t.Errorf("want what was reported, %s, got %s", got, own)
	}
	s.step(Watched{})
	s.run(3 * time.Second)
	s.step(Watched{Broken: map[string]string{DefaultTarget: "Nodes are not delivered"}})
	if got := s.replica.Fitness(); !got.Since.Equal(at(s.now).Wall.Truncate(time.Second)) {
		t.Errorf("want it unfit since now, at %v, got %+v", s.now, got)
	}
}

func TestASlotThatHasOpenedCountsAsSuccess(t *testing.T) {
	t.Run("fails for the first time when it does not open later", func(t *testing.T) {
		s := newStage(t, 8)
		s.stuck[0] = true
		name := s.slot(0, "", "r-0")
		for range 3 { // it does not open, and the session leaves it alone for 30, 60 and 120 s
			s.while(name, me)
			s.while(name, "")
		}
		s.step(Opened{Slot: 0, Epoch: member.Transitions(s.leases[name])})
		s.write(name, assign("r-1"))
		s.expectHolder(name, "")
		s.write(name, assign("r-0"))
		s.expectHolder(name, me)
		if tried := s.while(name, me); tried < 29*time.Second || tried > 32*time.Second {
			t.Errorf("want some 30 s to open after it was acquired again, got %v", tried)
		}
		if free := s.while(name, ""); free < 27*time.Second || free > 31*time.Second {
			t.Errorf("want it left alone for some 30 s, got %v", free)
		}
	})
	t.Run("does not count for another that has not", func(t *testing.T) {
		s := newStage(t, 8)
		s.stuck[1] = true
		first, second := s.slot(0, "", "r-0"), s.slot(1, "", "r-0")
		s.while(second, me)
		s.step(Opened{Slot: 0, Epoch: member.Transitions(s.leases[first])})
		s.reports(true, true, member.Failing)
	})
}

// The session also steps between its renewals, which are every 2 s.
func TestASessionReportsOnTimeThatItIsBlind(t *testing.T) {
	s := newStage(t, 8)
	s.slot(0, "", "r-0")
	s.run(10 * time.Second)
	s.blind = true
	for s.replica.others.Unseen().IsZero() {
		s.run(100 * time.Millisecond)
	}
	s.run(15*time.Second - 100*time.Millisecond)
	s.entitled(0, true)
	s.run(100 * time.Millisecond)
	if s.replica.Fitness().Observes {
		t.Error("want the session to report after 15 s that it is blind")
	}
}

func TestAReleaseWithoutAnswerEndsTheSession(t *testing.T) {
	s := newStage(t, 8)
	first, second := s.slot(0, "", "r-0"), s.slot(1, "", "r-0")
	s.run(10 * time.Second)
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.Update && (r.Name == first || r.Name == second) {
			return unanswered, false
		}
		return member.Done, false
	}
	s.write(first, assign("r-1"))
	s.write(second, assign("r-1"))
	s.run(14900 * time.Millisecond)
	if s.exit != nil {
		t.Fatalf("ended too early: %+v", s.exit)
	}
	s.run(2200 * time.Millisecond) // with its next renewal at the latest
	s.exits(ReasonUnfit, true)
	if !strings.Contains(s.exit.Message, "slot 0: ") {
		t.Errorf("want the first slot that could not be released named, got %q", s.exit.Message)
	}
}

// The answers that nothing of its slots is in flight come after the fence, and the one for
// Everything does not come.
func TestASuspendedSessionDoesNotEmptyItsLease(t *testing.T) {
	s := newStage(t, 8)
	name := s.slot(0, "", "r-0")
	s.slot(1, "", "r-0")
	s.run(10 * time.Second)
	s.fate = on(name, member.Update, member.Refused, false)
	s.write(name, assign("r-1"))
	s.idle = false
	s.run(16 * time.Second)
	ticket := s.reported[len(s.reported)-1].Ticket // of slot 1, which is handed over, too
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Name == "fleet-session-r-0" && r.Lease != nil && member.Holder(r.Lease) == "" {
			t.Errorf("at %v: want the session Lease kept, since something may be in flight", s.now)
		}
		return member.Unanswered, false
	}
	for !s.replica.Suspended() {
		s.run(100 * time.Millisecond)
	}
	s.step(Idle{Slot: 1, Ticket: ticket})
	s.run(3 * time.Second)
	s.exits(ReasonInFlight, false)
}

// write is a write of the leader and its outcome.
type write struct {
	at      time.Duration
	name    string
	outcome member.Outcome
}

// TestResigning writes a second Lease in the cases that name one. After it has resigned a session
// is no candidate for a minute.
func TestResigning(t *testing.T) {
	const s = time.Second
	refused, unanswered, done, conflict := member.Refused, member.Unanswered, member.Done, member.Conflict
	for name, test := range map[string]struct {
		// resignations is how often it has resigned before, some minutes ago.
		resignations int
		writes       []write
		resigns      bool
	}{
		"nothing fails":                  {0, []write{{0, "a", done}, {20 * s, "b", done}}, false},
		"one Lease, for a little less":   {0, []write{{0, "a", refused}, {15*s - 1, "a", unanswered}}, false},
		"one Lease":                      {0, []write{{0, "a", refused}, {15 * s, "a", unanswered}}, true},
		"one Lease again":                {1, []write{{0, "a", refused}, {30*s - 1, "a", refused}}, false},
		"one Lease again, for longer":    {1, []write{{0, "a", refused}, {30 * s, "a", refused}}, true},
		"several":                        {1, []write{{0, "a", refused}, {15 * s, "b", refused}}, true},
		"several, the first one at last": {1, []write{{0, "a", refused}, {10 * s, "b", refused}, {15 * s, "a", refused}}, true},
		"one that succeeds in between":   {0, []write{{0, "a", refused}, {10 * s, "b", done}, {15 * s, "a", refused}}, false},
		"others before, which succeeded": {
			1, []write{{0, "a", refused}, {1 * s, "b", refused}, {2 * s, "a", done}, {3 * s, "a", refused}, {20 * s, "a", refused}}, false,
		},
		"a conflict in between": {0, []write{{0, "a", refused}, {10 * s, "b", conflict}, {15 * s, "a", refused}}, true},
		"conflicts alone":       {0, []write{{0, "a", conflict}, {20 * s, "a", conflict}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewSession(settings(8))
			if err != nil {
				t.Fatal(err)
			}
			if r.leader.resignations = test.resignations; r.leader.resignations > 0 {
				r.leader.resigned = at(time.Hour - r.settings.Assignment.HomeFor/2)
			}
			end := member.Moment{}
			for _, w := range test.writes {
				end = at(time.Hour + w.at)
				r.leader.recordWrite(end, w.name, w.outcome)
			}
			if resigned := !r.MayLead(end); resigned != test.resigns {
				t.Errorf("want it to resign: %v, got %v", test.resigns, resigned)
			}
			if !r.MayLead(end.Add(time.Minute)) {
				t.Error("want it to be a candidate after a minute")
			}
		})
	}
	t.Run("after 10 min without, as if for the first time", func(t *testing.T) {
		r, err := NewSession(settings(8))
		if err != nil {
			t.Fatal(err)
		}
		r.leader.resigned, r.leader.resignations = at(time.Hour-r.settings.Assignment.HomeFor), 5
		r.leader.recordWrite(at(time.Hour), "a", refused)
		r.leader.recordWrite(at(time.Hour+15*s), "a", refused)
		if r.leader.resignations != 1 || r.MayLead(at(time.Hour+15*s)) {
			t.Errorf("want it to resign after 15 s, for the first time, got %d times", r.leader.resignations)
		}
	})
	t.Run("once for all failures in the meantime", func(t *testing.T) {
		r, err := NewSession(settings(8))
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{0, 15 * s, 20 * s, 30 * s} {
			r.leader.recordWrite(at(time.Hour+after), "a", refused)
		}
		if r.leader.resignations != 1 || r.MayLead(at(time.Hour+75*s-1)) || !r.MayLead(at(time.Hour+75*s)) {
			t.Errorf("want it to resign once, for a minute, got %d times until %v", r.leader.resignations, r.leader.resigned.Monotonic-time.Hour)
		}
	})
	t.Run("lists that fail, with one in between that does not", func(t *testing.T) {
		s := leads(t)
		s.run(20 * time.Second)
		failing := true
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Verb == member.List && failing {
				return member.Unanswered, false
			}
			return member.Done, false
		}
		s.remove(member.SlotLeaseName("fleet", 3, 8))
		s.run(10 * time.Second)
		failing = false
		s.run(time.Second)
		failing = true
		s.remove(member.SlotLeaseName("fleet", 4, 8))
		s.run(10 * time.Second)
		if !s.replica.MayLead(at(s.now)) {
			t.Error("want it to continue to lead, since a list succeeded 10 s ago")
		}
	})
}

func TestOnlyWritesOfTheLeaderCountForItsResignation(t *testing.T) {
	for name, test := range map[string]struct {
		request member.Request
		counts  bool
	}{
		"a slot Lease is created":          {member.Request{Verb: member.Create, Name: "a", Need: member.NeedLeadership}, true},
		"an assignment is written":         {member.Request{Verb: member.Update, Name: "a", Need: member.NeedLeadership}, true},
		"a session Lease is read":          {member.Request{Verb: member.Get, Name: "a", Need: member.NeedLeadership}, false},
		"the sessions are listed":          {member.Request{Verb: member.List, Need: member.NeedLeadership}, false},
		"a slot of the session's own":      {member.Request{Verb: member.Update, Name: "a", Need: member.NeedFence}, false},
		"the session Lease of the session": {member.Request{Verb: member.Update, Name: "a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := leads(t)
			s.replica.send(test.request, question{about: aboutCensus})
			s.replica.handleReply(at(s.now), member.Reply{ID: s.replica.nextID, Outcome: member.Refused})
			want := failingWrites{}
			if test.counts {
				want = failingWrites{since: at(s.now), name: test.request.Name}
			}
			if s.replica.leader.writes != want {
				t.Errorf("want %+v, got %+v", want, s.replica.leader.writes)
			}
		})
	}
}

func TestHandOverTime(t *testing.T) {
	for name, test := range map[string]struct {
		change func(r *Session)
		want   time.Duration
	}{
		"fit":                            {func(*Session) {}, 30 * time.Second},
		"unfit":                          {func(r *Session) { r.ability.report.Observes = false }, 10 * time.Second},
		"it is about to empty its Lease": {func(r *Session) { r.activation.stuck = "a slot could not be released" }, 10 * time.Second},
		"the other time is less": {
			func(r *Session) { r.activation.stuck, r.settings.Config.HandOverTimeout = "stuck", 5*time.Second }, 5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewSession(settings(8))
			if err != nil {
				t.Fatal(err)
			}
			r.ability.report = serving(member.Serving)
			if test.change(r); r.holder.handOverTime() != test.want {
				t.Errorf("want %v, got %v", test.want, r.holder.handOverTime())
			}
		})
	}
}

// Only a renewal that succeeds has to become visible in the watch, and none from before a failure.
func TestUnseenCountsSuccessfulRenewalsOnly(t *testing.T) {
	unseen := func(t *testing.T) *stage {
		t.Helper()
		s, _ := stageThatHolds(t)
		s.run(10 * time.Second)
		s.blind = true
		for s.replica.others.Unseen().IsZero() {
			s.run(100 * time.Millisecond)
		}
		return s
	}
	t.Run("no renewal that fails, and no read", func(t *testing.T) {
		s := unseen(t)
		s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.run(2 * time.Second)
		for range 60 {
			s.run(100 * time.Millisecond)
			if !s.replica.others.Unseen().IsZero() {
				t.Fatalf("want no renewal awaited, got it unseen since %v", s.replica.others.Unseen().Monotonic)
			}
		}
	})
	t.Run("no read that succeeds", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.run(3 * time.Second)
		s.replica.send(member.Request{Verb: member.Get, Name: "fleet-session-r-0"}, question{about: aboutOwn})
		s.replica.handleReply(at(s.now), member.Reply{ID: s.replica.nextID, Outcome: member.Done, Lease: s.leases["fleet-session-r-0"]})
		if !s.replica.others.Unseen().IsZero() {
			t.Error("want no renewal awaited")
		}
	})
	t.Run("nothing that was sent before the fence passed", func(t *testing.T) {
		s := unseen(t)
		s.now += 20 * time.Second // the process was stopped
		s.fate = on("fleet-session-r-0", member.Update, unanswered, false)
		s.step(Woke{})
		if !s.replica.others.Unseen().IsZero() {
			t.Error("want no renewal awaited")
		}
	})
}

// The list is never answered, and the session also steps between renewals.
func TestASessionThatCannotListStopsAfter15s(t *testing.T) {
	s, _, _ := resuming(t)
	for end := s.replica.activation.begun.Monotonic + 15*time.Second; s.now < end; {
		if s.replica.activation.stuck != "" {
			t.Fatalf("want it to continue until %v, got %q", end, s.replica.activation.stuck)
		}
		s.run(100 * time.Millisecond)
	}
	if s.replica.activation.stuck == "" {
		t.Error("want it to give its Lease up after 15 s")
	}
}

func TestSessionLeaseRecordsSettingsAndFitness(t *testing.T) {
	s, _ := stageThatHolds(t)
	s.run(3 * time.Second)
	notes := s.leases["fleet-session-r-0"].Annotations
	for key, want := range Record(s.replica.settings) {
		if got := notes[key]; got != want {
			t.Errorf("%s: want %q, got %q", key, want, got)
		}
	}
	s.step(Leaving{})
	s.run(10 * time.Second)
	s.exits(ReasonLeft, true)
	if got := s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationFitness]; got != "" {
		t.Errorf("want no report of a session that has left, got %q", got)
	}
}
