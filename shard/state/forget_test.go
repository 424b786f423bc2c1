package state

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
)

func TestMemoryIsBounded(t *testing.T) {
	t.Run("of attempts to acquire that are not answered", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, false)
		name := s.slot(0, "", "r-0")
		s.run(10 * time.Minute)
		if got := len(s.replica.slots[0].attempts); got > mostAttempts {
			t.Errorf("%d attempts are remembered, want at most %d", got, mostAttempts)
		}
		s.fate = nil
		s.run(5 * time.Second)
		s.holder(name, me)
		s.entitled(0, true)
	})
	t.Run("an attempt that is forgotten and takes effect gives nothing, and the slot is acquired once more", func(t *testing.T) {
		s := newStage(t, 8)
		var first *coordinationv1.Lease
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name != "fleet-slot-000" || r.Verb != member.Update {
				return member.Done, true
			}
			if first == nil {
				first = r.Lease
			}
			return member.Unanswered, false
		}
		name := s.slot(0, "", "r-0")
		s.run(10 * time.Minute)
		s.write(name, func(l *coordinationv1.Lease) { l.Spec = *first.Spec.DeepCopy() })
		s.entitled(0, false)
		s.fate = nil
		s.run(5 * time.Second)
		s.holder(name, me)
		s.entitled(0, true)
	})
	t.Run("of sessions that have come and gone", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, "", "r-9")
		for n := range 5000 {
			s.now += 2 * time.Second
			s.write(name, func(l *coordinationv1.Lease) {
				prefer("r-0")(l)
				holder(member.Identity(fmt.Sprintf("r-%d", n), "zzzzz"))(l)
			})
		}
		if got := len(s.replica.proofs) + s.replica.others.Known() + len(s.replica.words); got > 2000 {
			t.Errorf("something is remembered of %d sessions and replicas, one of which is named by a Lease", got)
		}
	})
}

// A session is dead by a proof only if the proof was asked for after the session was seen on the slot, also when an older
// proof was forgotten.
func TestASessionOfWhichAllIsForgottenIsReadAnew(t *testing.T) {
	s := newStage(t, 8)
	s.write("fleet-session-r-1", holder(""))
	name := s.slot(0, another, "r-0")
	s.holder(name, me) // another was proven dead
	for n := range 5000 {
		s.now += 2 * time.Second
		s.slot(1, member.Identity(fmt.Sprintf("q-%d", n), "zzzzz"), "r-0")
	}
	if s.replica.proofs[another] != nil {
		t.Fatal("want the proof forgotten")
	}
	s.write("fleet-session-r-1", holder(another)) // by hand: no session gets its Lease twice
	s.holder(s.slot(2, another, "r-0"), another)
}
