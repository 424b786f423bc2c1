package protocol

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestFencePassesAgainWhileLeasesAreRead(t *testing.T) {
	s, _, list := resuming(t)
	first := *list
	s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
	s.run(12 * time.Second)
	list = s.unanswered("", member.List, true)
	s.run(3 * time.Second)
	s.changes() // what was in flight was cancelled the first time
	s.step(Replied{member.Reply{ID: first.ID, Outcome: member.Done, Leases: s.all()}})
	s.entitled(0, false)
	if list.ID == 0 || list.ID == first.ID {
		t.Error("want a new list requested")
	}
}

func TestInFlightAtTheFence(t *testing.T) {
	t.Run("a session that has renewed does not exit while it reads", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.idle, s.fate = false, on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.run(9500 * time.Millisecond)
		s.unanswered("", member.List, false)
		s.run(5 * time.Second)
		if s.exit != nil {
			t.Errorf("exit %+v", s.exit)
		}
	})
	t.Run("what was in flight before the session acted again does not count when it leaves", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.idle, s.fate = false, on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.run(9500 * time.Millisecond)
		s.idle, s.fate = true, nil
		s.run(time.Second)
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name == "fleet-session-r-0" && r.Verb == member.Update && member.Holder(r.Lease) == "" {
				return member.Unanswered, false
			}
			if r.Name == "fleet-session-r-0" && r.Verb == member.Get {
				return member.Unanswered, false
			}
			return member.Done, true
		}
		s.step(Leaving{})
		s.run(20 * time.Second)
		s.step(Woke{})
		s.exits(ReasonLeft, false)
	})
	t.Run("a leaving session with something in flight exits for that reason", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.idle = false
		s.step(Leaving{})
		s.run(23 * time.Second)
		s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.run(12 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("a leaving session that acts waits for the slot that it hands over", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.idle = false
		s.step(Leaving{})
		s.run(34 * time.Second)
		if s.exit != nil {
			t.Errorf("exit %+v", s.exit)
		}
		s.run(20 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("a hand-over with nothing in flight is not cancelled after the fence", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Refused, false)
		s.write(name, assign("r-1"))
		s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.replica.slots[0].retry = at(s.now + 11*time.Second)
		s.run(10 * time.Second)
		s.fate = nil
		s.run(5 * time.Second)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Stopped}, Change{Slot: Everything, Kind: Suspended}, Change{Slot: 0, Epoch: 1, Kind: Lost})
	})
	t.Run("nothing is handed over while the session is suspended", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.run(10 * time.Second)
		s.write(name, assign("r-1"))
		s.changes(Change{Slot: Everything, Kind: Suspended})
	})
}

func TestLeavingReportsWhatItDoes(t *testing.T) {
	s, _ := stageThatHolds(t)
	lists := 0
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.List {
			lists++
		}
		return member.Done, true
	}
	s.step(Leaving{})
	s.run(6 * time.Second)
	s.exits(ReasonLeft, true)
	s.changes(Change{Slot: 0, Epoch: 1, Kind: Stopped}, Change{Slot: 0, Epoch: 1, Kind: Lost})
	if lists != 0 {
		t.Errorf("want no list, got %d", lists)
	}
}

func TestLeavingSessionWaitsForItsReleases(t *testing.T) {
	t.Run("while a release is refused", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Refused, false)
		s.write(name, assign("r-1"))
		s.step(Leaving{})
		s.run(3 * time.Second)
		s.expectHolder("fleet-session-r-0", me)
	})
	t.Run("while it is unknown whether its name was cleared", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name == "fleet-slot-000" {
				return member.Unanswered, false
			}
			return member.Done, true
		}
		s.slot(0, me, "r-1")
		s.step(Leaving{})
		s.run(3 * time.Second)
		s.expectHolder("fleet-session-r-0", me)
	})
	t.Run("not for an acquisition that was refused", func(t *testing.T) {
		s := newStage(t, 8)
		updates := s.counted("fleet-slot-000", member.Update, member.Refused)
		s.slot(0, "", "r-0")
		s.step(Leaving{})
		s.exits(ReasonLeft, true)
		if *updates != 1 {
			t.Errorf("want one write, got %d", *updates)
		}
	})
}

func TestAttemptsOfASlot(t *testing.T) {
	t.Run("the Lease is deleted while one is open", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, false)
		s.remove(s.slot(0, "", "r-0"))
		s.changes()
	})
	t.Run("one that has held the slot once holds it never again", func(t *testing.T) {
		s, name := stageThatHolds(t)
		acquired := s.leases[name].DeepCopy()
		s.write(name, assign("r-1"))
		s.reported, s.idle = nil, false
		acquired.Annotations[v1alpha1.AnnotationAssignedReplica] = "r-1"
		s.fate = on(name, member.Update, member.Refused, false)
		s.step(Seen{s.put(acquired)})
		s.entitled(0, false)
		s.changes()
	})
	t.Run("the time of an acquisition is that of the clock", func(t *testing.T) {
		s, name := stageThatHolds(t)
		if got := s.leases[name].Spec.AcquireTime.Time; !got.Equal(at(s.now).Wall) {
			t.Errorf("want %v, got %v", at(s.now).Wall, got)
		}
	})
	t.Run("an unknown weight of a dead holder does not change the recorded one", func(t *testing.T) {
		s := newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(""))
		name := s.slot(0, another, "r-1")
		s.write(name, func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationWeight, "5")
			assign("r-0")(l)
		})
		s.expectHolder(name, me)
		if got := s.leases[name].Annotations[v1alpha1.AnnotationWeight]; got != "5" {
			t.Errorf("want 5, got %q", got)
		}
	})
	t.Run("a name that is cleared leaves no home", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Verb == member.Update && r.Name == "fleet-slot-000" && r.Lease.Annotations[v1alpha1.AnnotationHome] != "" {
				t.Errorf("want no home noted, got %v", r.Lease.Annotations)
			}
			return member.Done, true
		}
		s.slot(0, me, "r-0")
	})
}

func TestReleasesOfASlot(t *testing.T) {
	t.Run("an answer that comes after the loss changes nothing", func(t *testing.T) {
		s, name := stageThatHolds(t)
		update := s.unanswered(name, member.Update, false)
		s.write(name, assign("r-1"))
		s.remove(name)
		s.step(Replied{member.Reply{ID: update.ID, Outcome: member.Refused}})
		s.entitled(0, false)
	})
	t.Run("one without an answer makes no later one uncertain", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Unanswered, true)
		s.write(name, assign("r-1"))
		s.fate = nil
		s.run(time.Second)
		s.write(name, assign("r-0"))
		s.run(time.Second)
		s.expectHolder(name, me)
		s.fate = on(name, member.Update, member.Refused, false)
		s.write(name, assign("r-1"))
		s.entitled(0, true)
	})
	t.Run("a read that finds no Lease is not sent again", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.blind = true
		reads := 0
		s.fate = func(r member.Request) (member.Outcome, bool) {
			switch {
			case r.Name == name && r.Verb == member.Update:
				delete(s.leases, name)
				return member.Conflict, false
			case r.Name == name && r.Verb == member.Get:
				reads++
			}
			return member.Done, true
		}
		s.write(name, assign("r-1"))
		s.run(3 * time.Second)
		if reads != 1 {
			t.Errorf("want one read, got %d", reads)
		}
	})
}

func TestUnknownAnswer(t *testing.T) {
	s, _ := stageThatHolds(t)
	s.unanswered("fleet-session-r-0", member.Update, false)
	s.run(3 * time.Second)
	s.step(Replied{member.Reply{ID: 1 << 40, Outcome: member.NotFound}})
	if s.exit != nil {
		t.Errorf("exit %+v", s.exit)
	}
}

func TestQuarantineLasts(t *testing.T) {
	quarantined := func(t *testing.T, sessions string) (s *stage, name string) {
		t.Helper()
		s = newStage(t, 8)
		name = s.slot(0, "", "r-1")
		s.write(name, func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationQuarantine, sessions)
			assign("r-0")(l)
		})
		s.run(10 * time.Second)
		return s, name
	}
	t.Run("15 s from its list, regardless of what else is written", func(t *testing.T) {
		s, name := quarantined(t, me)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		s.run(6 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("15 s from another list", func(t *testing.T) {
		s, name := quarantined(t, me)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationQuarantine, me+",by-hand") })
		s.run(14 * time.Second)
		s.expectHolder(name, "")
		s.run(2 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("a later session of the replica does not confirm for an earlier one", func(t *testing.T) {
		s, name := quarantined(t, another)
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
			heldBy("r-1_ccccc")(l)
			member.Annotate(l, v1alpha1.AnnotationConfirmed, "slot-0")
			member.Annotate(l, v1alpha1.AnnotationCreated, "r-1_ccccc")
		})
		s.run(10 * time.Second)
		s.expectHolder(name, "")
	})
	t.Run("one proof is enough for a holder regardless of what else is written", func(t *testing.T) {
		s := newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(""))
		reads := 0
		s.fate = func(r member.Request) (member.Outcome, bool) {
			switch {
			case r.Name == "fleet-session-r-1":
				reads++
			case r.Name == "fleet-slot-000" && r.Verb == member.Update:
				return member.Refused, false
			}
			return member.Done, true
		}
		name := s.slot(0, another, "r-0")
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		s.fate = nil
		s.run(time.Second)
		s.expectHolder(name, me)
		if reads != 1 {
			t.Errorf("want one read, got %d", reads)
		}
	})
}

func TestLeaderStartsAnew(t *testing.T) {
	t.Run("the time of a slot without a holder starts with the new leadership", func(t *testing.T) {
		s := leads(t)
		s.run(20 * time.Second)
		name := s.slot(0, "", "r-1")
		s.run(4 * time.Second)
		s.step(Deposed{})
		s.step(Elected{})
		s.run(3 * time.Second)
		s.expectHolder(name, "")
		s.run(4 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("an answer to an earlier leadership", func(t *testing.T) {
		s := leads(t)
		s.run(30 * time.Second)
		s.live = nil
		write := s.unanswered("fleet-session-r-1", member.Update, false)
		s.run(16 * time.Second)
		first := write.ID
		s.write("fleet-session-r-9", heldBy("")) // decides again
		if write.ID != first {
			t.Error("want one write at a time, got a second one")
		}
		s.step(Deposed{})
		s.step(Replied{member.Reply{ID: first, Outcome: member.Conflict}})
		s.expectHolder("fleet-session-r-1", another)
	})
	t.Run("labels are written without a list of all sessions", func(t *testing.T) {
		s := leads(t)
		name := s.slot(0, another, "r-1")
		lists := s.counted("", member.List, member.Unanswered)
		s.write(name, func(l *coordinationv1.Lease) { l.Labels = nil })
		if *lists != 0 || s.leases[name].Labels == nil {
			t.Errorf("want the labels at once, got %v after %d lists", s.leases[name].Labels, *lists)
		}
	})
	t.Run("a failed read of the own Lease restarts no timer", func(t *testing.T) {
		s := leads(t)
		s.run(30 * time.Second)
		s.live = nil
		s.run(10 * time.Second)
		s.restored("fleet-session-r-0", func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		s.fate = on("fleet-session-r-0", member.Get, member.Unanswered, false)
		s.run(2 * time.Second)
		s.fate = nil
		s.run(5 * time.Second)
		s.expectHolder("fleet-session-r-1", "")
	})
}

// Deadlines are kept without events: no renewal of a session that is otherwise unchanged leads to a
// decision.
func TestDeadlinesWithoutNews(t *testing.T) {
	quiet := func(t *testing.T) (s *stage, name string) {
		t.Helper()
		s, name = stageThatHolds(t)
		s.idle = false
		s.run(20 * time.Second) // until the session Lease no longer shows that it was created
		return s, name
	}
	t.Run("of a hand-over", func(t *testing.T) {
		s, name := quiet(t)
		s.write(name, assign("r-1"))
		s.run(31 * time.Second)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Stopped}, Change{Slot: 0, Epoch: 1, Kind: Cancelled})
		s.run(15 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("of what is lost", func(t *testing.T) {
		s, name := quiet(t)
		s.remove(name)
		s.run(16 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("of a session without a Lease", func(t *testing.T) {
		s, _ := quiet(t)
		name := s.slot(1, another, "r-0")
		s.run(16 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("of a session whose Lease is gone, as the watch has shown", func(t *testing.T) {
		s, _ := quiet(t)
		s.write("fleet-session-r-1", heldBy(another))
		name := s.slot(1, another, "r-0")
		s.remove("fleet-session-r-1")
		s.run(40 * time.Second)
		s.expectHolder(name, me)
	})
}

func TestLeaderThatReleasesItsLeaseLeadsNoMore(t *testing.T) {
	s := leads(t)
	s.run(20 * time.Second)
	created := 0
	s.fate = func(r member.Request) (member.Outcome, bool) {
		switch {
		case r.Name == "fleet-session-r-0" && (r.Verb == member.Get || member.Holder(r.Lease) == ""):
			return member.Unanswered, false
		case r.Verb == member.Create:
			created++
		}
		return member.Done, true
	}
	s.step(Leaving{})
	s.run(time.Second)
	s.remove("fleet-slot-003")
	s.run(time.Second)
	if s.exit != nil {
		t.Fatalf("exit %+v", s.exit)
	}
	if created != 0 {
		t.Errorf("want no Lease created, got %d", created)
	}
}

// A read that is requested in the step in which a version is observed counts as having begun after
// it.
func TestReadThatBeginsWithAVersion(t *testing.T) {
	begun := func(t *testing.T) (s *stage, name string, list *member.Request, old *coordinationv1.Lease) {
		t.Helper()
		s, name, list = resuming(t)
		s.step(Replied{member.Reply{ID: list.ID, Outcome: member.Unanswered}})
		first := list.ID
		old = s.leases[name].DeepCopy()
		s.now += time.Second
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		if list.ID == first {
			t.Fatal("want a list requested in this step")
		}
		return s, name, list, old
	}
	lost := Change{Slot: 0, Epoch: 1, Kind: Lost}
	t.Run("shows that it is gone", func(t *testing.T) {
		s, _, list, _ := begun(t)
		s.step(Replied{member.Reply{ID: list.ID, Outcome: member.Done}})
		s.changes(lost)
	})
	t.Run("shows that etcd was restored to an older one", func(t *testing.T) {
		s, _, list, old := begun(t)
		s.idle = false
		heldBy(another)(old)
		s.step(Replied{member.Reply{ID: list.ID, Outcome: member.Done, Leases: []*coordinationv1.Lease{old}}})
		s.changes(lost)
	})
}
