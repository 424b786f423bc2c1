package protocol

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// listing returns a leader with a slot Lease that was created again and is not listed yet: its list
// of all sessions is not answered.
func listing(t *testing.T) (s *stage, name string, list *member.Request) {
	t.Helper()
	s = newStage(t, 1)
	s.write("fleet-session-r-1", heldBy(another))
	list = s.unanswered("", member.List, true)
	s.step(Elected{})
	return s, member.SlotLeaseName("fleet", 0, 1), list
}

func (s *stage) quarantine(name string) string {
	return s.leases[name].Annotations[v1alpha1.AnnotationQuarantine]
}

func TestCensus(t *testing.T) {
	t.Run("lists each session once, sorted, and no session for an empty Lease", func(t *testing.T) {
		s := newStage(t, 1)
		s.write("fleet-session-r-1", heldBy(another))
		s.write("fleet-session-a", heldBy("a_aaaaa"))
		s.write("fleet-session-r-2", heldBy(""))
		s.write("fleet-leader", heldBy("z_aaaaa"))
		s.step(Elected{})
		if got, want := s.quarantine("fleet-slot-000"), "a_aaaaa,"+me+","+another; got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	})
	t.Run("is taken again for a Lease that is created after it", func(t *testing.T) {
		s := newStage(t, 1)
		s.step(Elected{})
		s.write("fleet-session-r-1", heldBy(another))
		s.write("fleet-slot-000", func(l *coordinationv1.Lease) {
			*l = *newLease("fleet", "ns", "fleet-slot-000")
			l.UID = "created-again"
		})
		if got, want := s.quarantine("fleet-slot-000"), me+","+another; got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	})
	t.Run("that began before a Lease was created does not count for it", func(t *testing.T) {
		s, name, list := listing(t)
		before := s.all()
		s.write("fleet-session-r-2", heldBy("r-2_ccccc"))
		s.write(name, func(l *coordinationv1.Lease) {
			*l = *newLease("fleet", "ns", name)
			l.UID = "created-again"
		})
		first := list.ID
		s.fate = nil
		s.step(Replied{member.Reply{ID: first, Outcome: member.Done, Leases: before}})
		if got, want := s.quarantine(name), me+","+another+",r-2_ccccc"; got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	})
	t.Run("is requested once at a time", func(t *testing.T) {
		s, _, list := listing(t)
		first := list.ID
		s.write("fleet-session-r-2", heldBy("r-2_ccccc"))
		if list.ID != first {
			t.Error("want one list at a time, got a second one")
		}
	})
	t.Run("without an answer it lists no session, and is requested again after 500 ms", func(t *testing.T) {
		s, name, list := listing(t)
		first := list.ID
		s.step(Replied{member.Reply{ID: first, Outcome: member.Unanswered}})
		if got := s.quarantine(name); got != "" {
			t.Errorf("listed %q", got)
		}
		s.run(400 * time.Millisecond)
		if list.ID != first {
			t.Error("want it requested after 500 ms, got it earlier")
		}
		s.run(200 * time.Millisecond)
		if list.ID == first {
			t.Error("want it requested again")
		}
	})
	t.Run("15 s count from when a Lease is seen to be listed, also if it shows an earlier list", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, "", "r-1")
		s.write(name, func(l *coordinationv1.Lease) {
			l.UID = "restored" // with the annotations of the Lease before it
			assign("r-0")(l)
			member.Annotate(l, v1alpha1.AnnotationQuarantine, me)
		})
		s.run(20 * time.Second)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationLeaseUID, "restored") })
		s.run(14 * time.Second)
		s.expectHolder(name, "")
		s.run(2 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("all Leases are created before the sessions are listed once", func(t *testing.T) {
		s := newStage(t, 40)
		created, lists := 0, 0
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Verb == member.List {
				lists++
				if created != 40 {
					t.Errorf("listed after %d of 40 Leases", created)
				}
			}
			if r.Verb == member.Create {
				created++
			}
			return member.Done, true
		}
		s.step(Elected{})
		if created != 40 || lists != 1 {
			t.Errorf("want 40 Leases and 1 list, got %d and %d", created, lists)
		}
	})
	t.Run("a Lease that cannot be created does not delay the others", func(t *testing.T) {
		s := newStage(t, 2)
		s.fate = on("fleet-slot-001", member.Create, member.Refused, false)
		s.step(Elected{})
		s.run(time.Second)
		if s.quarantine("fleet-slot-000") == "" {
			t.Error("the other Lease is not listed")
		}
	})
}

func TestLabelsOfASlotLease(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"another fleet's": {v1alpha1.LabelFleet: "other", v1alpha1.LabelLease: v1alpha1.LeaseOfSlot},
		"another kind's":  {v1alpha1.LabelFleet: "fleet", v1alpha1.LabelLease: v1alpha1.LeaseOfSession},
	} {
		t.Run(name, func(t *testing.T) {
			s := leads(t)
			slot := s.slot(0, another, "r-1")
			s.write(slot, func(l *coordinationv1.Lease) {
				l.Labels = labels
				member.Annotate(l, v1alpha1.AnnotationQuarantine, another)
			})
			got := s.leases[slot]
			if got.Labels[v1alpha1.LabelFleet] != "fleet" || got.Labels[v1alpha1.LabelLease] != v1alpha1.LeaseOfSlot {
				t.Errorf("got %v", got.Labels)
			}
			if s.quarantine(slot) != another {
				t.Errorf("quarantine: want it as it was, got %q", s.quarantine(slot))
			}
		})
	}
	t.Run("a Lease is created with them", func(t *testing.T) {
		s, name, _ := listing(t)
		if got := s.leases[name].Labels; got[v1alpha1.LabelFleet] != "fleet" || got[v1alpha1.LabelLease] != v1alpha1.LeaseOfSlot {
			t.Errorf("got %v", got)
		}
	})
}

func TestNeeds(t *testing.T) {
	s := leads(t)
	s.fate = func(r member.Request) (member.Outcome, bool) {
		want := member.NeedNothing
		switch {
		case r.Verb == member.Create, r.Verb == member.Get && r.Name == "fleet-session-r-1",
			r.Verb == member.Update && r.Name == "fleet-session-r-1":
			want = member.NeedLeadership
		case r.Verb == member.Update && strings.HasPrefix(r.Name, "fleet-slot-"):
			want = member.NeedLeadership
			if member.Holder(r.Lease) != member.Holder(s.leases[r.Name]) {
				want = member.NeedFence
			}
		case r.Verb == member.List:
			want = member.NeedLeadership
		}
		if r.Need != want {
			t.Errorf("%s %s: want it to need %s, got %s", r.Verb, r.Name, want, r.Need)
		}
		if r.Name == "fleet-session-r-1" && r.Verb == member.Update {
			return member.Conflict, false
		}
		return member.Done, true
	}
	s.remove("fleet-slot-007")
	name := s.slot(0, "", "r-0")
	s.expectHolder(name, me)
	s.write(name, assign("r-1"))
	s.expectHolder(name, "")
	s.slot(1, me, "r-1")
	s.expectHolder("fleet-slot-001", "")
	s.run(20 * time.Second)
	s.live = nil
	s.run(20 * time.Second)
}

func TestDeclareDeadOnce(t *testing.T) {
	silent := func(t *testing.T) *stage {
		t.Helper()
		s := leads(t)
		s.run(30 * time.Second)
		s.live = nil
		return s
	}
	t.Run("one write at a time", func(t *testing.T) {
		s := silent(t)
		write := s.unanswered("fleet-session-r-1", member.Update, false)
		s.run(15 * time.Second)
		first := write.ID
		s.run(10 * time.Second)
		if first == 0 || write.ID != first {
			t.Errorf("want one write, got the requests %d and %d", first, write.ID)
		}
	})
	t.Run("again after 500 ms, until it succeeds", func(t *testing.T) {
		s := silent(t)
		writes := s.counted("fleet-session-r-1", member.Update, member.Refused)
		s.run(20 * time.Second)
		if *writes < 11 || *writes > 14 {
			t.Errorf("want a write every 500 ms for 6 s, got %d", *writes)
		}
		s.fate = nil
		s.run(600 * time.Millisecond)
		s.expectHolder("fleet-session-r-1", "")
	})
	t.Run("confirmations are removed, and weights stay", func(t *testing.T) {
		s := silent(t)
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationConfirmed, "uid")
			member.Annotate(l, v1alpha1.AnnotationWeights, "0:1")
			member.Annotate(l, v1alpha1.AnnotationLeaving, "true")
		})
		s.run(16 * time.Second)
		s.expectHolder("fleet-session-r-1", "")
		notes := s.leases["fleet-session-r-1"].Annotations
		if notes[v1alpha1.AnnotationConfirmed] != "" || notes[v1alpha1.AnnotationWeights] != "0:1" || notes[v1alpha1.AnnotationLeaving] == "" {
			t.Errorf("got %v", notes)
		}
	})
	t.Run("a Lease that a read shows as gone is missing from then on", func(t *testing.T) {
		s := silent(t)
		name := s.slot(0, another, "r-0")
		delete(s.leases, "fleet-session-r-1")
		s.run(15 * time.Second)
		for _, peer := range s.replica.Facts(at(s.now)).Sessions {
			if peer.Replica == "r-1" {
				t.Errorf("want no session Lease of r-1, got %+v", peer)
			}
		}
		s.expectHolder(name, another)
		s.run(16 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("not while its own slot Leases are read", func(t *testing.T) {
		s := leads(t)
		s.run(30 * time.Second)
		s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
		s.run(10 * time.Second)
		s.live = nil
		s.unanswered("", member.List, false)
		s.run(3 * time.Second)
		sent := 0
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name != "fleet-session-r-0" {
				sent++
			}
			return member.Done, true
		}
		s.remove("fleet-slot-003")
		s.run(30 * time.Second)
		if sent != 0 {
			t.Errorf("want nothing written while the Leases are not read, got %d requests", sent)
		}
	})
}

func TestLeadershipForgetsItsAssignments(t *testing.T) {
	s := leads(t)
	s.run(20 * time.Second)
	name := s.slot(0, another, "r-1")
	s.fate = on(name, member.Update, member.Refused, false)
	s.write("fleet-session-r-1", func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationLeaving, "true") })
	s.run(2 * time.Second)
	s.step(Deposed{})
	s.fate = nil
	s.write("fleet-session-r-1", func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationLeaving, "") })
	s.run(2 * time.Second)
	s.step(Elected{})
	if got := s.assignee(0); got != "r-1" {
		t.Errorf("want the assignment of the earlier leadership forgotten, got the slot assigned to %s", got)
	}
}

func TestHomeNoteLasts(t *testing.T) {
	s := leads(t)
	name := s.slot(0, another, "r-1")
	s.run(15 * time.Minute)
	s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationHome, "r-7") })
	s.run(5 * time.Minute)
	s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
	s.run(4 * time.Minute)
	if got := s.leases[name].Annotations[v1alpha1.AnnotationHome]; got != "r-7" {
		t.Errorf("after 9 minutes: want the note r-7, got %q", got)
	}
	s.run(2 * time.Minute)
	if got := s.leases[name].Annotations[v1alpha1.AnnotationHome]; got != "" {
		t.Errorf("after 11 minutes: want no note, got %q", got)
	}
}
