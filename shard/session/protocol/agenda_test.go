package protocol

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestSlotSet(t *testing.T) {
	set := newSlotSet(200)
	for _, number := range []int{1, 63, 70, 130} {
		set.set(number, true)
	}
	for from, want := range map[int]int{0: 1, 1: 1, 2: 63, 63: 63, 64: 70, 70: 70, 71: 130, 130: 130, 131: -1, 199: -1} {
		if got := set.next(from); got != want {
			t.Errorf("from %d: want %d, got %d", from, want, got)
		}
	}
}

// decided returns the slots that a step decides.
func (s *stage) decided(now member.Moment, event Event) []int {
	s.t.Helper()
	return s.replica.Step(now, event).Slots
}

func TestAStepDecidesOnlyWhatHasChanged(t *testing.T) {
	t.Run("nothing, when nothing has", func(t *testing.T) {
		s := newStage(t, 8)
		s.slot(0, "", "r-0")
		s.run(20 * time.Second)
		if got := s.decided(at(s.now), Woke{}); len(got) > 0 {
			t.Errorf("want none, got %v", got)
		}
	})
	t.Run("all, once, when a clock was set by a millisecond", func(t *testing.T) {
		s := newStage(t, 8)
		s.run(10 * time.Second)
		now := at(s.now)
		now.Wall = now.Wall.Add(time.Millisecond - 1)
		if got := s.decided(now, Woke{}); len(got) > 0 {
			t.Errorf("set by less: want none, got %v", got)
		}
		now.Wall = now.Wall.Add(1)
		if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 6, 7}, s.decided(now, Woke{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := s.decided(now, Woke{}); len(got) > 0 {
			t.Errorf("after that: want none, got %v", got)
		}
	})
	t.Run("a blocked slot once another request may be in flight", func(t *testing.T) {
		s := newStage(t, 40)
		creates := []member.Request{}
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Verb == member.Create {
				creates = append(creates, r)
				return unanswered, false
			}
			return member.Done, true
		}
		s.step(Elected{})
		if len(creates) != mostRequests {
			t.Fatalf("want %d requests, got %d", mostRequests, len(creates))
		}
		if got := s.decided(at(s.now), Woke{}); len(got) > 0 {
			t.Errorf("with all requests in flight: want none, got %v", got)
		}
		answer := func(number int) []int {
			l := creates[number].Lease.DeepCopy()
			l.UID, l.ResourceVersion = types.UID(l.Name), "1"
			return s.decided(at(s.now), Replied{member.Reply{ID: creates[number].ID, Sent: at(s.now), Outcome: member.Done, Lease: l}})
		}
		if diff := cmp.Diff([]int{5, 32}, answer(5)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("no slot that was blocked and whose Lease was created", func(t *testing.T) {
		s := newStage(t, 40)
		s.step(Elected{})
		if got := s.decided(at(s.now), Woke{}); len(got) > 0 {
			t.Errorf("want none, got %v", got)
		}
	})
}

func TestDeadlinesOnBothClocks(t *testing.T) {
	r, err := NewSession(settings(8))
	if err != nil {
		t.Fatal(err)
	}
	if due := r.nextDue(at(time.Second)); !due.IsZero() {
		t.Errorf("want no slot due, got %v", due.Monotonic)
	}
	now := at(10 * time.Second)
	r.deadlineFor(now, r.slots[0], member.Moment{Monotonic: 30 * time.Second, Wall: at(20 * time.Second).Wall})
	r.deadlineFor(now, r.slots[1], member.Moment{Monotonic: 20 * time.Second, Wall: at(30 * time.Second).Wall})
	if want := 20 * time.Second; r.dues[0] != want || r.dues[1] != want {
		t.Errorf("want both due when the first clock reaches the deadline, at %v, got %v", want, r.dues[:2])
	}
}

// Two slots are in quarantine, and one is not; their sessions confirm.
func TestConfirmationsAreRememberedBySession(t *testing.T) {
	s := newStage(t, 8)
	s.write("fleet-session-r-1", heldBy(another))
	for slot := range 3 {
		name := s.slot(slot, "", "r-1")
		if slot < 2 {
			s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationQuarantine, another) })
		}
	}
	s.run(20 * time.Second)
	confirm := func(session, text string) []int {
		t.Helper()
		l := s.leases["fleet-session-r-1"].DeepCopy()
		heldBy(session)(l)
		member.Annotate(l, v1alpha1.AnnotationConfirmed, text)
		return s.decided(at(s.now), Seen{s.put(l)})
	}
	knows := func(want map[string]map[types.UID]struct{}) {
		t.Helper()
		got := map[string]map[types.UID]struct{}{}
		for session, uids := range s.replica.table.confirmations {
			if session != me {
				got[session] = uids
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("confirmations (-want +got):\n%s", diff)
		}
	}
	set := func(uids ...types.UID) map[types.UID]struct{} {
		all := map[types.UID]struct{}{}
		for _, uid := range uids {
			all[uid] = struct{}{}
		}
		return all
	}
	if diff := cmp.Diff([]int{0}, confirm(another, "slot-0,slot-2")); diff != "" {
		t.Errorf("confirmed the first one in quarantine (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1}, confirm(another, "slot-0,slot-1")); diff != "" {
		t.Errorf("confirmed the second one, too (-want +got):\n%s", diff)
	}
	knows(map[string]map[types.UID]struct{}{another: set("slot-0", "slot-1")})
	confirm("r-1_ccccc", "slot-0,slot-1")
	knows(map[string]map[types.UID]struct{}{"r-1_ccccc": set("slot-0", "slot-1")})
	confirm("r-1_ccccc", "")
	knows(map[string]map[types.UID]struct{}{"r-1_ccccc": nil})
}
