package protocol

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// stageThatHolds returns a replica that holds slot 0.
func stageThatHolds(t *testing.T) (s *stage, name string) {
	t.Helper()
	s = newStage(t, 8)
	name = s.slot(0, "", "r-0")
	s.changes(Change{Slot: 0, Epoch: 1, Kind: Acquired})
	s.entitled(0, true)
	s.expectHolder(name, me)
	return s, name
}

// on returns a fate that ends requests of a verb for a Lease in an outcome.
func on(name string, verb member.Verb, outcome member.Outcome, takesEffect bool) func(member.Request) (member.Outcome, bool) {
	return func(r member.Request) (member.Outcome, bool) {
		if r.Name == name && r.Verb == verb {
			return outcome, takesEffect
		}
		return member.Done, true
	}
}

func TestAcquire(t *testing.T) {
	t.Run("not what another replica should hold", func(t *testing.T) {
		s := newStage(t, 8)
		s.expectHolder(s.slot(0, "", "r-1"), "")
		s.expectHolder(s.slot(1, "", ""), "")
		s.changes()
	})
	t.Run("not from a session that lives", func(t *testing.T) {
		s := newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(another))
		s.expectHolder(s.slot(0, another, "r-0"), another)
		s.run(time.Minute)
		s.changes()
	})
	t.Run("from a session whose Lease is empty, or another's", func(t *testing.T) {
		for _, now := range []string{"", "r-1_ccccc"} {
			s := newStage(t, 8)
			s.write("fleet-session-r-1", heldBy(now))
			s.expectHolder(s.slot(0, another, "r-0"), me)
		}
	})
	t.Run("with the last weight that the dead holder has reported", func(t *testing.T) {
		s := newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(""))
		s.report("r-1", another, "0:7", "")
		name := s.slot(0, another, "r-0")
		s.expectHolder(name, me)
		if got := s.leases[name].Annotations[v1alpha1.AnnotationWeight]; got != "7" {
			t.Errorf("weight: want 7, got %q", got)
		}
	})
	t.Run("a live read decides, not the watch", func(t *testing.T) {
		s := newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(""))
		stored := s.leases["fleet-session-r-1"].DeepCopy()
		heldBy(another)(stored)
		s.put(stored) // and the watch lags
		s.expectHolder(s.slot(0, another, "r-0"), another)
		s.run(time.Minute)
		s.changes()
	})
	t.Run("from a session without a Lease, 15 s after a read has shown that", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, another, "r-0")
		s.run(14 * time.Second)
		s.expectHolder(name, another)
		s.run(2 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("from a holder that is not a session", func(t *testing.T) {
		s := newStage(t, 8)
		s.expectHolder(s.slot(0, "written by hand", "r-0"), me)
	})
	t.Run("without an answer", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, true)
		s.slot(0, "", "r-0")
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Acquired})
		s.entitled(0, true)
	})
	t.Run("refused, and again", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Refused, false)
		name := s.slot(0, "", "r-0")
		s.expectHolder(name, "")
		s.fate = nil
		s.run(time.Second)
		s.expectHolder(name, me)
	})
	t.Run("an answer that comes after the Lease was seen to be gone does not bring it back", func(t *testing.T) {
		s := newStage(t, 8)
		l := newLease("fleet", "ns", "fleet-slot-000")
		l.UID, l.ResourceVersion = "u", "500"
		member.Annotate(l, v1alpha1.AnnotationLeaseUID, "u")
		assign("r-0")(l)
		acquire := s.replica.Step(at(s.now), Seen{l}).Requests[0]
		s.replica.Step(at(s.now), Gone{l})
		written := acquire.Lease.DeepCopy()
		written.ResourceVersion = "501"
		out := s.replica.Step(at(s.now), Replied{member.Reply{ID: acquire.ID, Sent: at(s.now), Outcome: member.Done, Lease: written}})
		if len(out.Requests) != 1 || out.Requests[0].Verb != member.Get || len(out.Changes) > 0 {
			t.Fatalf("want the Lease read once more, got %+v", out)
		}
		if !s.replica.Facts(at(s.now)).Slots[0].Missing {
			t.Error("want no Lease until it was read")
		}
		s.replica.Step(at(s.now), Replied{member.Reply{ID: out.Requests[0].ID, Sent: at(s.now), Outcome: member.NotFound}})
		if facts := s.replica.Facts(at(s.now)).Slots[0]; !facts.Missing || facts.Phase != "free" {
			t.Errorf("want no Lease, got %+v", facts)
		}
	})
	t.Run("our name on a Lease that we have not acquired is cleared, and then acquired", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, me, "r-1")
		s.expectHolder(name, "")
		s.entitled(0, false)
		s.changes()
	})
	t.Run("not without a live session Lease", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.run(10 * time.Second)
		s.expectHolder(s.slot(0, "", "r-0"), "")
		s.entitled(0, false)
	})
}

func TestHandOver(t *testing.T) {
	stopped := Change{Slot: 0, Epoch: 1, Kind: Stopped}
	t.Run("stopped, idle, released", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.step(Weighed{Weights: map[int]int64{0: 7}})
		s.write(name, assign("r-1"))
		s.changes(stopped, Change{Slot: 0, Epoch: 1, Kind: Lost})
		s.expectHolder(name, "")
		s.entitled(0, false)
		if got := s.leases[name].Annotations[v1alpha1.AnnotationWeight]; got != "7" {
			t.Errorf("weight: want 7, got %q", got)
		}
	})
	t.Run("what is in flight continues, is cancelled after 30 s, and ends the process after another 15 s", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write(name, assign("r-1"))
		s.changes(stopped)
		s.run(29 * time.Second)
		s.entitled(0, true)
		s.run(2 * time.Second)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Cancelled})
		s.entitled(0, false)
		s.run(15 * time.Second)
		s.exits(ReasonInFlight, false)
		s.expectHolder(name, me)
		s.expectHolder("fleet-session-r-0", me)
	})
	t.Run("an unfit session cancels it after 10 s", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle, s.blind = false, true
		s.run(19 * time.Second) // blind after some 15 s
		s.changes(stopped)
		s.reported = nil
		s.run(6 * time.Second)
		s.changes()
		s.run(4 * time.Second)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Cancelled})
		s.expectHolder(name, me)
	})
	t.Run("a session that becomes unfit cancels it then, and one that is fit again does not", func(t *testing.T) {
		broken := map[string]string{DefaultTarget: "no answers"}
		for name, test := range map[string]struct {
			before, after map[string]string
			want          []Change
		}{
			"becomes unfit": {nil, broken, []Change{{Slot: 0, Epoch: 1, Kind: Cancelled}}},
			"is fit again":  {broken, nil, nil},
		} {
			t.Run(name, func(t *testing.T) {
				s, name := stageThatHolds(t)
				s.idle = false
				s.step(Opened{Slot: 0, Epoch: 1})
				s.step(Watched{Broken: test.before})
				s.write(name, assign("r-1"))
				s.run(9 * time.Second)
				s.changes(stopped)
				s.step(Watched{Broken: nil})
				s.run(3 * time.Second)
				s.reported = nil
				s.step(Watched{Broken: test.after})
				s.run(2 * time.Second)
				s.changes(test.want...)
			})
		}
	})
	t.Run("reverted, and an answer to the first stop does not count for the second", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write(name, assign("r-1"))
		first := s.reported[0].Ticket
		s.write(name, assign("r-0"))
		s.write(name, assign("r-1"))
		second := s.reported[2].Ticket
		s.changes(stopped, Change{Slot: 0, Epoch: 1, Kind: Resumed}, stopped)
		s.step(Idle{Slot: 0, Ticket: first})
		s.expectHolder(name, me)
		s.step(Idle{Slot: 0, Ticket: second})
		s.expectHolder(name, "")
	})
	t.Run("a release without an answer: nothing starts until a newer version names us", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Unanswered, false)
		s.write(name, assign("r-1"))
		s.run(time.Second)
		s.entitled(0, false)
		s.fate = func(r member.Request) (member.Outcome, bool) { // none of the next ones is sent
			if r.Name == name && r.Verb == member.Update {
				return member.Refused, false
			}
			return member.Done, true
		}
		s.run(3 * time.Second)
		s.entitled(0, false)
		s.reported = nil
		s.write(name, assign("r-0"))
		s.entitled(0, true)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Resumed})
	})
	t.Run("a release without an answer that took effect", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Unanswered, true)
		s.write(name, assign("r-1"))
		s.changes(stopped, Change{Slot: 0, Epoch: 1, Kind: Lost})
	})
}

func TestLose(t *testing.T) {
	lost := Change{Slot: 0, Epoch: 1, Kind: Lost}
	t.Run("the slot Lease is deleted", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.remove(name)
		s.changes(lost)
		s.run(time.Minute)
		if s.leases[name] != nil {
			t.Error("want no Lease created by its holder, got one")
		}
	})
	t.Run("it has another holder, or is another Lease with the same", func(t *testing.T) {
		for _, change := range []func(*coordinationv1.Lease){heldBy(another), func(l *coordinationv1.Lease) { l.UID = "restored" }} {
			s, name := stageThatHolds(t)
			s.write(name, change)
			s.changes(lost)
			s.entitled(0, false)
		}
	})
	t.Run("what is in flight of a lost slot ends the process", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.remove(name)
		s.run(16 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("the session is lost", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.write("fleet-session-r-0", heldBy(""))
		s.run(3 * time.Second)
		s.exits(ReasonLost, false)
	})
	others := func(l *coordinationv1.Lease) { l.Annotations = map[string]string{v1alpha1.AnnotationSlots: "512"} }
	t.Run("other settings on the leader Lease are no reason to exit for a session that acts", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.write("fleet-leader", others)
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
			heldBy(another)(l)
			others(l)
		})
		s.run(time.Second)
		s.entitled(0, true)
		if held := member.Holder(s.leases[name]); held != me || s.exit != nil {
			t.Errorf("slot 0 is held by %q, exit: %+v", held, s.exit)
		}
	})
	t.Run("the list that a session reads before it acts shows other settings", func(t *testing.T) {
		for _, name := range []string{"fleet-leader", "fleet-session-r-1"} {
			replica, err := NewSession(settings(8))
			if err != nil {
				t.Fatal(err)
			}
			s := &stage{t: t, replica: replica, leases: map[string]*coordinationv1.Lease{}, version: 100, now: time.Second, idle: true}
			l := &coordinationv1.Lease{}
			l.Name = name
			heldBy(another)(l)
			others(l)
			s.put(l)
			s.step(Started{})
			s.changes()
			s.exits(ReasonMismatch, false)
		}
	})
}

func TestSuspend(t *testing.T) {
	suspended := Change{Slot: Everything, Kind: Suspended}
	away := on("fleet-session-r-0", member.Update, member.Unanswered, false)
	t.Run("at the fence, and resumed by a renewal", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.fate = away
		s.run(8 * time.Second)
		s.entitled(0, true)
		s.run(2 * time.Second)
		s.changes(suspended)
		s.entitled(0, false)
		s.run(time.Minute)
		s.fate = nil
		s.run(3 * time.Second)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Resumed})
		s.entitled(0, true)
	})
	t.Run("not resumed before the slot Leases are read", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = away
		s.run(10 * time.Second)
		heldBy(another)(s.leases[name]) // and the watch does not show it
		s.put(s.leases[name].DeepCopy())
		s.fate = on("", member.List, member.Unanswered, false)
		s.run(3 * time.Second)
		s.entitled(0, false)
		s.fate = nil
		s.run(3 * time.Second)
		s.changes(suspended, Change{Slot: 0, Epoch: 1, Kind: Lost})
	})
	t.Run("what is in flight 2 s after the fence ends the process", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.fate, s.idle = away, false
		s.run(10 * time.Second)
		if s.exit != nil {
			t.Fatalf("exit %+v", s.exit)
		}
		s.run(2 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("a suspended machine", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		later := member.Moment{Monotonic: s.now + time.Millisecond, Wall: at(s.now + time.Hour).Wall}
		out := s.replica.Step(later, Woke{})
		if len(out.Changes) != 1 || out.Changes[0].Kind != Suspended {
			t.Errorf("want it suspended by the wall clock, got %+v", out.Changes)
		}
		s.entitled(0, false)
	})
}

func TestRestoredEtcd(t *testing.T) {
	s, name := stageThatHolds(t)
	old := s.leases[name].DeepCopy()
	old.ResourceVersion = "50"
	heldBy("")(old)
	assign("r-1")(old)
	s.step(Listed{[]*coordinationv1.Lease{old, s.leases["fleet-session-r-0"]}})
	s.entitled(0, true) // a list that began before our write was answered shows the same
	s.leases[name] = old
	s.step(Listed{[]*coordinationv1.Lease{old, s.leases["fleet-session-r-0"]}})
	s.changes(Change{Slot: 0, Epoch: 1, Kind: Lost})
}

func TestLeave(t *testing.T) {
	t.Run("the leader assigns its slots to another replica", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.step(Leaving{})
		s.run(time.Second)
		if s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationLeaving] == "" {
			t.Error("want the leaving session to announce it, got no annotation")
		}
		s.expectHolder(name, me)
		s.write(name, assign("r-1"))
		s.exits(ReasonLeft, true)
		s.expectHolder("fleet-session-r-0", "")
	})
	t.Run("the leader assigns them to other replicas one after the other", func(t *testing.T) {
		s, name := stageThatHolds(t)
		for slot := 1; slot < 8; slot++ {
			s.slot(slot, "", "r-0")
		}
		if s.replica.MayLead(at(s.now)) != true {
			t.Error("want a candidate")
		}
		s.step(Leaving{})
		if s.replica.MayLead(at(s.now)) {
			t.Error("want no candidate that leaves")
		}
		for slot := 1; slot < 4; slot++ {
			s.run(4 * time.Second)
			s.expectHolder(name, me)
			s.write(member.SlotLeaseName("fleet", slot, 8), assign("r-1"))
		}
		s.run(2 * time.Second)
		s.expectHolder(name, me)
		s.run(2 * time.Second)
		s.exits(ReasonLeft, true)
		s.expectHolder(name, "")
	})
	t.Run("without a leader", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.step(Leaving{})
		s.run(6 * time.Second)
		s.exits(ReasonLeft, true)
		s.expectHolder(name, "")
		if got := s.leases[name].Annotations[v1alpha1.AnnotationHome]; got != "r-0" {
			t.Errorf("home: want r-0, got %q", got)
		}
	})
	t.Run("without an API server", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.fate = func(member.Request) (member.Outcome, bool) { return member.Unanswered, false }
		s.step(Leaving{})
		s.run(time.Minute)
		s.exits(ReasonLeft, false)
	})
	t.Run("while an attempt to acquire may still be in flight", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, false)
		name := s.slot(0, "", "r-0")
		attempt := s.leases[name].ResourceVersion
		s.fate = nil
		s.step(Leaving{})
		s.run(time.Second)
		s.exits(ReasonLeft, true)
		if s.leases[name].ResourceVersion == attempt {
			t.Error("want no exit while the attempt could take effect")
		}
	})
	t.Run("before it has begun", func(t *testing.T) {
		s := newStage(t, 8)
		s.step(Leaving{})
		s.exits(ReasonLeft, true)
	})
}

// Each rule alone keeps a session from acquiring a slot that it may acquire otherwise.
func TestAcquireRules(t *testing.T) {
	states := map[string]func(h *holder, s *slot){
		"no slot Lease":                                 func(_ *holder, s *slot) { s.lease = nil },
		"earlier work in flight":                        func(_ *holder, s *slot) { s.busy = true },
		"this session is named and has not acquired it": func(_ *holder, s *slot) { s.holder = me },
		"leaving with an attempt in flight": func(h *holder, s *slot) {
			h.leavingAt, s.attempts = at(time.Second), []time.Time{at(0).Wall}
		},
		"another replica is to be assigned":  func(_ *holder, s *slot) { s.target = "r-1" },
		"leaving":                            func(h *holder, _ *slot) { h.leavingAt = at(time.Second) },
		"another replica is assigned":        func(_ *holder, s *slot) { s.assigned = "r-1" },
		"changes of Leases are not observed": func(h *holder, _ *slot) { h.ability.blind = true },
		"stopping":                           func(h *holder, _ *slot) { h.activation.stuck = "no list" },
		"did not open here":                  func(_ *holder, s *slot) { s.closedUntil = at(time.Hour) },
		"quarantine":                         func(_ *holder, s *slot) { s.genuine = false },
		"the holder may live":                func(_ *holder, s *slot) { s.holder = another },
	}
	for _, rule := range acquireRules {
		t.Run(rule.name, func(t *testing.T) {
			s := newStage(t, 8)
			s.replica.observer.observeLease(at(s.now), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Name: "fleet-slot-000", UID: "u",
				Annotations: map[string]string{v1alpha1.AnnotationAssignedReplica: "r-0", v1alpha1.AnnotationLeaseUID: "u"},
			}}, 0)
			h, first := s.replica.holder, s.replica.slots[0]
			if got := h.whyNotAcquired(at(s.now), first); got != nil {
				t.Fatalf("want a slot that may be acquired, got %q", got.name)
			}
			states[rule.name](h, first)
			if got := h.whyNotAcquired(at(s.now), first); got == nil || got.name != rule.name {
				t.Errorf("want %q, got %v", rule.name, got)
			}
		})
	}
}
