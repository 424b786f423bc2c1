package protocol

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// unanswered has requests of a verb for a Lease take effect, or not, without an answer, and returns
// the last one.
func (s *stage) unanswered(name string, verb member.Verb, takesEffect bool) *member.Request {
	last := &member.Request{}
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Name == name && r.Verb == verb {
			*last = r
			return unanswered, takesEffect
		}
		return member.Done, true
	}
	return last
}

// counted counts requests of a verb for a Lease, which all end in an outcome.
func (s *stage) counted(name string, verb member.Verb, outcome member.Outcome) *int {
	count := 0
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Name == name && r.Verb == verb {
			count++
			return outcome, false
		}
		return member.Done, true
	}
	return &count
}

// resuming returns a session whose fence has passed and that has renewed: its list of all Leases is
// not answered yet.
func resuming(t *testing.T) (s *stage, name string, list *member.Request) {
	t.Helper()
	s, name = stageThatHolds(t)
	s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
	s.run(10 * time.Second)
	list = s.unanswered("", member.List, true)
	s.run(3 * time.Second)
	s.reported = nil
	return s, name, list
}

func TestReadBeforeActing(t *testing.T) {
	t.Run("a list that began before a Lease was seen does not show it as gone", func(t *testing.T) {
		s, name, list := resuming(t)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationWeight, "5") })
		s.step(Replied{member.Reply{ID: list.ID, Outcome: member.Done, Leases: []*coordinationv1.Lease{s.leases["fleet-session-r-0"]}}})
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Resumed})
	})
	t.Run("nor an older version of it", func(t *testing.T) {
		s, name, list := resuming(t)
		old := s.leases[name].DeepCopy()
		heldBy(another)(old)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationWeight, "5") })
		s.step(Replied{member.Reply{ID: list.ID, Outcome: member.Done, Leases: []*coordinationv1.Lease{old, s.leases["fleet-session-r-0"]}}})
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Resumed})
	})
	t.Run("a list that began after shows it as gone", func(t *testing.T) {
		s, _, list := resuming(t)
		s.step(Replied{member.Reply{ID: list.ID, Outcome: member.Done}})
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Lost})
	})
	t.Run("a list without an answer shows nothing, and is requested again", func(t *testing.T) {
		s, _, list := resuming(t)
		first := list.ID
		s.step(Replied{member.Reply{ID: first, Outcome: member.Unanswered}})
		s.run(400 * time.Millisecond)
		if list.ID != first {
			t.Error("want it requested after 500 ms, got it at once")
		}
		s.run(200 * time.Millisecond)
		if list.ID == first {
			t.Error("want it requested again after 500 ms")
		}
		s.changes()
		s.entitled(0, false)
	})
	t.Run("there is one list at a time", func(t *testing.T) {
		s, _, list := resuming(t)
		first := list.ID
		s.write("fleet-session-r-1", heldBy(another))
		if list.ID != first {
			t.Error("want one list at a time, got a second one")
		}
	})
}

func TestIdleAnswersOneChangeOnly(t *testing.T) {
	t.Run("an answer that comes while the slot is held does not count for the next stop", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write(name, assign("r-1"))
		s.write(name, assign("r-0"))
		s.step(Idle{Slot: 0, Ticket: s.reported[0].Ticket})
		s.write(name, assign("r-1"))
		s.expectHolder(name, me)
		s.step(Idle{Slot: 0, Ticket: s.reported[2].Ticket})
		s.expectHolder(name, "")
	})
	t.Run("a slot that is held again is busy again", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Refused, false)
		s.write(name, assign("r-1"))
		s.idle = false
		s.write(name, assign("r-0"))
		s.fate = nil
		s.run(time.Second)
		s.write(name, assign("r-1"))
		s.run(31 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("a slot that was released is not acquired again before its loss is answered", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write(name, assign("r-1"))
		s.step(Idle{Slot: 0, Ticket: s.reported[0].Ticket})
		s.expectHolder(name, "")
		s.write(name, assign("r-0"))
		s.expectHolder(name, "")
		s.step(Idle{Slot: 0, Ticket: s.reported[1].Ticket})
		s.expectHolder(name, me)
	})
	t.Run("a slot that does not exist", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.step(Idle{Slot: -2, Ticket: 1})
		s.step(Idle{Slot: 8, Ticket: 1})
		s.entitled(0, true)
	})
}

func TestReleaseIsSentAgain(t *testing.T) {
	t.Run("after one without an answer", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Unanswered, false)
		s.write(name, assign("r-1"))
		s.run(time.Second)
		s.fate = nil
		s.run(2 * time.Second)
		s.expectHolder(name, "")
	})
	t.Run("one that is refused is as if it was never sent", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Refused, false)
		s.write(name, assign("r-1"))
		s.entitled(0, true)
		s.reported = nil
		s.write(name, assign("r-0"))
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Resumed})
	})
	t.Run("one that is refused after one without an answer proves nothing, regardless of what was read in between", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Unanswered, false)
		s.write(name, assign("r-1"))
		s.fate = on(name, member.Get, member.Unanswered, false)
		s.run(time.Second)
		s.fate = on(name, member.Update, member.Refused, false)
		s.run(5 * time.Second)
		s.entitled(0, false)
		s.fate = nil
		s.run(time.Second)
		s.expectHolder(name, "")
	})
	t.Run("after a newer version that still names us, a refused one is as if it was never sent", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on(name, member.Update, member.Unanswered, false)
		s.write(name, assign("r-1"))
		s.fate = on(name, member.Update, member.Refused, false)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationWeight, "5") })
		s.run(3 * time.Second)
		s.entitled(0, true)
	})
}

func TestWhatIsWrittenOnASlot(t *testing.T) {
	home := func(s *stage, name string) string { return s.leases[name].Annotations[v1alpha1.AnnotationHome] }
	t.Run("a hand-over records no home", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.write(name, assign("r-1"))
		if got := home(s, name); got != "" {
			t.Errorf("home: want none, got %q", got)
		}
	})
	t.Run("a leaving session records no home for a slot that is assigned to another replica", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.step(Leaving{})
		s.write(name, assign("r-1"))
		if got := home(s, name); got != "" {
			t.Errorf("home: want none, got %q", got)
		}
	})
	t.Run("a leaving session keeps the recorded home", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationHome, "r-9") })
		s.step(Leaving{})
		s.run(6 * time.Second)
		if got := home(s, name); got != "r-9" {
			t.Errorf("home: want r-9, got %q", got)
		}
	})
	t.Run("an acquisition by the home removes the record, and no other acquisition does", func(t *testing.T) {
		for of, want := range map[string]string{"r-0": "", "r-9": "r-9"} {
			s := newStage(t, 8)
			name := s.slot(0, "", "")
			s.write(name, func(l *coordinationv1.Lease) {
				member.Annotate(l, v1alpha1.AnnotationHome, of)
				assign("r-0")(l)
			})
			s.expectHolder(name, me)
			if got := home(s, name); got != want {
				t.Errorf("home %s: want %q after the acquisition, got %q", of, want, got)
			}
		}
	})
	t.Run("a slot without an assigned replica keeps its holder", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.write(name, assign(""))
		s.run(time.Minute)
		s.changes()
	})
	t.Run("no two acquisitions have the same time", func(t *testing.T) {
		s, name := stageThatHolds(t)
		seen := map[time.Time]bool{}
		for range 3 {
			seen[s.leases[name].Spec.AcquireTime.Time] = true
			s.write(name, assign("r-1"))
			s.write(name, assign("r-0"))
			s.expectHolder(name, me)
		}
		if len(seen) != 3 {
			t.Errorf("want 3 times, got %v", seen)
		}
	})
	t.Run("an attempt without an answer is sent once more", func(t *testing.T) {
		s := newStage(t, 8)
		updates := s.counted("fleet-slot-000", member.Update, member.Unanswered)
		name := s.slot(0, "", "r-0")
		s.fate = nil
		before := s.version
		s.run(time.Second)
		s.expectHolder(name, me)
		if *updates != 1 || s.version-before > 2 { // the acquisition, and a renewal of the session
			t.Errorf("want one more write of the slot Lease, got %d writes in all", s.version-before)
		}
	})
	t.Run("the quarantine is removed by the acquisition", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, "", "r-1")
		s.write(name, func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationQuarantine, me)
			assign("r-0")(l)
		})
		s.run(16 * time.Second)
		s.expectHolder(name, me)
		if got := s.leases[name].Annotations[v1alpha1.AnnotationQuarantine]; got != "" {
			t.Errorf("quarantine: want none, got %q", got)
		}
	})
}

func TestAnotherLeaseOfTheSameVersion(t *testing.T) {
	s, name := stageThatHolds(t)
	s.idle = false
	restored := s.leases[name].DeepCopy()
	restored.UID = types.UID("restored")
	s.step(Seen{restored})
	s.changes(Change{Slot: 0, Epoch: 1, Kind: Lost})
}

func TestAnswersWithoutTheWatch(t *testing.T) {
	t.Run("an acquisition that is answered holds the slot", func(t *testing.T) {
		s := newStage(t, 8)
		s.blind = true
		s.slot(0, "", "r-0")
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Acquired})
	})
	t.Run("a Lease that is not found is lost", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.blind = true
		delete(s.leases, name)
		s.step(Seen{func() *coordinationv1.Lease {
			l := s.replica.slots[0].lease.DeepCopy()
			l.ResourceVersion += "0"
			assign("r-1")(l)
			return l
		}()})
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Stopped}, Change{Slot: 0, Epoch: 1, Kind: Lost})
	})
}
