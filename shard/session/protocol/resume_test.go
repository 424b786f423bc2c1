package protocol

import (
	"testing"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// A write that clears the holder may take effect as long as it is not answered, regardless of what
// has changed meanwhile.
func TestAReleaseIsNotRevertedBeforeItsAnswer(t *testing.T) {
	s, name := stageThatHolds(t)
	s.run(10 * time.Second)
	s.blind = true
	s.fate = on(name, member.Update, unanswered, false)
	for s.replica.Fitness().Observes {
		s.run(100 * time.Millisecond)
	}
	s.blind = false
	s.run(4 * time.Second)
	if !s.replica.Fitness().Observes {
		t.Fatal("want its renewals observed")
	}
	s.entitled(0, false)
	if got := s.replica.slots[0].phase; got != releasing {
		t.Errorf("want it %s, got %s", releasing, got)
	}
}

// A hand-over that is reverted restarts the deadline of a slot that has not opened, and keeps no
// deadline.
func TestTheDeadlineToOpenStartsAgainAfterARevertedHandOver(t *testing.T) {
	s := newStage(t, 8)
	s.stuck[0], s.idle = true, false
	name := s.slot(0, "", "r-0")
	s.run(20 * time.Second)
	s.write(name, assign("r-1"))
	s.run(15 * time.Second)
	s.write(name, assign("r-0"))
	s.idle = true
	s.run(29 * time.Second)
	s.expectHolder(name, me)
	s.reports(true, true, member.Untried)
	s.run(1100 * time.Millisecond)
	s.expectHolder(name, "")
}

func TestASessionThatHasStoppedAcquiresNothing(t *testing.T) {
	s, name := stageThatHolds(t)
	s.slot(1, "", "r-0")
	s.run(10 * time.Second)
	s.fate = on(name, member.Update, member.Refused, false)
	s.write(name, assign("r-1"))
	s.idle = false // so that the other slot keeps its session Lease
	s.run(16 * time.Second)
	s.expectHolder("fleet-session-r-0", me)
	s.expectHolder(s.slot(2, "", "r-0"), "")
}

// An answer that is not news leads to no request: a created Lease and an acquired slot are not read
// again.
func TestKnownLeasesAreNotReadAgain(t *testing.T) {
	s := newStage(t, 8)
	reads := 0
	s.fate = func(r member.Request) (member.Outcome, bool) {
		if r.Verb == member.Get {
			reads++
		}
		return member.Done, true
	}
	s.step(Elected{})
	s.run(20 * time.Second)
	for slot := range 8 {
		s.expectHolder(member.SlotLeaseName("fleet", slot, 8), me)
	}
	s.remove("fleet-slot-007") // it is created again in the step that observes that it is gone
	s.run(time.Second)
	if reads > 0 {
		t.Errorf("want no Lease read, got %d", reads)
	}
	acquire := s.unanswered(s.slot(0, "", "r-1"), member.Update, false)
	name := s.slot(0, "", "r-0")
	written := acquire.Lease.DeepCopy()
	written.ResourceVersion = "9999"
	s.replica.Step(at(s.now), Seen{written}) // the watch event arrives before the answer
	out := s.replica.Step(at(s.now), Replied{member.Reply{ID: acquire.ID, Sent: at(s.now), Outcome: member.Done, Lease: written}})
	if len(out.Requests) > 0 {
		t.Errorf("%s: want nothing asked, got %+v", name, out.Requests)
	}
}

// A list of the watch that shows an older slot Lease is checked, because etcd may have been
// restored. One that shows an older session Lease is not.
func TestOnlyOlderSlotLeasesAreChecked(t *testing.T) {
	s, name := stageThatHolds(t)
	s.run(3 * time.Second)
	for want, old := range []string{"fleet-session-r-0", name} { // none, and then one
		leases := s.all()
		for i, l := range leases {
			if l.Name == old {
				leases[i] = l.DeepCopy()
				leases[i].ResourceVersion = "1"
			}
		}
		lists := 0
		for _, request := range s.replica.Step(at(s.now), Listed{leases}).Requests {
			if request.Verb == member.List {
				lists++
			}
		}
		if lists != want {
			t.Errorf("older %s: want %d lists, got %d", old, want, lists)
		}
	}
}

func TestNoSlotWaitsForAReadThatWasAnswered(t *testing.T) {
	s := newStage(t, 8)
	s.write("fleet-session-r-1", heldBy(""))
	s.expectHolder(s.slot(0, another, "r-0"), me)
	if p := s.replica.proofs.sessions[another]; p == nil || p.pending || !p.waiting.isEmpty() {
		t.Errorf("want the read answered and nothing waiting for it, got %+v", p)
	}
}
