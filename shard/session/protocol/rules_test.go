package protocol

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// unanswered, as the outcome of a request, means that it never gets an answer. Whether it takes
// effect is the second result.
const unanswered member.Outcome = ""

// restored changes a Lease on the API server only: the watch does not show it yet.
func (s *stage) restored(name string, change func(*coordinationv1.Lease)) {
	l := s.leases[name].DeepCopy()
	change(l)
	s.put(l)
}

func acquiredEarlier(l *coordinationv1.Lease) {
	earlier := metav1.NewMicroTime(l.Spec.AcquireTime.Add(-time.Second))
	l.Spec.AcquireTime = &earlier
}

func TestProofOfDeathIsForgottenWithItsHolder(t *testing.T) {
	proven := func(t *testing.T) (s *stage, name string) {
		t.Helper()
		s = newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(""))
		name = s.slot(0, another, "r-0")
		s.expectHolder(name, me)
		s.restored("fleet-session-r-1", heldBy(another))
		return s, name
	}
	t.Run("a slot that shows the session later needs a new read", func(t *testing.T) {
		s, _ := proven(t)
		s.expectHolder(s.slot(1, another, "r-0"), another)
	})
	t.Run("so does a slot that shows it again", func(t *testing.T) {
		s, name := proven(t)
		s.write(name, heldBy(another))
		s.expectHolder(name, another)
	})
	t.Run("so does a slot in whose quarantine it is listed later", func(t *testing.T) {
		s, _ := proven(t)
		name := s.slot(1, "", "r-1")
		s.write(name, func(l *coordinationv1.Lease) {
			assign("r-0")(l)
			member.Annotate(l, v1alpha1.AnnotationQuarantine, another)
		})
		s.run(20 * time.Second)
		s.expectHolder(name, "")
	})
	t.Run("but one read is enough for all slots that showed the session before it", func(t *testing.T) {
		s := newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(another))
		for slot := range 8 {
			s.slot(slot, another, "r-0")
		}
		reads := 0
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name == "fleet-session-r-1" {
				reads++
			}
			return member.Done, true
		}
		s.write("fleet-session-r-1", heldBy(""))
		for slot := range 8 {
			s.expectHolder(member.SlotLeaseName("fleet", slot, 8), me)
		}
		if reads != 1 {
			t.Errorf("want 1 read of the session Lease, got %d", reads)
		}
	})
}

func TestFailedRenewalRestartsTheTimers(t *testing.T) {
	for _, outcome := range []member.Outcome{member.Unanswered, member.Refused} {
		t.Run(string(outcome), func(t *testing.T) {
			s := leads(t)
			s.run(30 * time.Second)
			s.live = nil
			s.run(10 * time.Second)
			s.fate = on("fleet-session-r-0", member.Update, outcome, false)
			s.run(2 * time.Second)
			s.fate = nil
			s.run(12 * time.Second)
			s.expectHolder("fleet-session-r-1", another)
			s.run(10 * time.Second)
			s.expectHolder("fleet-session-r-1", "")
		})
	}
}

func TestHolderCountsByItsOwnWriteOnly(t *testing.T) {
	t.Run("a Lease that names the holder and another time of acquisition is lost", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write(name, acquiredEarlier)
		s.entitled(0, false)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Lost})
	})
	t.Run("an attempt is not confirmed by a name that was written by hand", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, false)
		name := s.slot(0, "", "r-0")
		s.write(name, heldBy(me))
		s.entitled(0, false)
		s.changes()
	})
	t.Run("an attempt is not confirmed by a Lease of another UID", func(t *testing.T) {
		s := newStage(t, 8)
		var attempt *coordinationv1.Lease
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name == "fleet-slot-000" && r.Verb == member.Update {
				attempt = r.Lease
				return member.Unanswered, false
			}
			return member.Done, true
		}
		name := s.slot(0, "", "r-0")
		s.write(name, func(l *coordinationv1.Lease) {
			attempt.DeepCopyInto(l)
			l.UID = "restored"
		})
		s.entitled(0, false)
		s.changes()
	})
}

func TestLeavingSessionWaitsForItsAcquisitions(t *testing.T) {
	t.Run("while the write that makes an attempt too late is refused", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, false)
		name := s.slot(0, "", "r-0")
		s.fate = on("fleet-slot-000", member.Update, member.Refused, false)
		s.step(Leaving{})
		s.run(10 * time.Second)
		s.expectHolder("fleet-session-r-0", me)
		attempt := s.leases[name].ResourceVersion
		s.fate = nil
		s.run(time.Second)
		s.exits(ReasonLeft, true)
		if s.leases[name].ResourceVersion == attempt {
			t.Error("want no exit while the attempt could take effect")
		}
	})
	t.Run("while the Lease cannot be read after an attempt without an answer", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, true)
		name := s.slot(0, "", "r-1")
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name == name {
				return member.Unanswered, false
			}
			return member.Done, true
		}
		s.write(name, assign("r-0"))
		s.step(Leaving{})
		s.run(10 * time.Second)
		s.expectHolder("fleet-session-r-0", me)
		s.fate = nil
		s.run(time.Second)
		s.exits(ReasonLeft, true)
		s.expectHolder(name, "")
	})
	t.Run("while a write that clears its name is not answered", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, unanswered, false)
		s.slot(0, me, "r-1")
		s.step(Leaving{})
		s.run(3 * time.Second)
		s.expectHolder("fleet-session-r-0", me)
	})
	t.Run("while a slot is held, and while something of it is in flight", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.step(Leaving{})
		s.run(3 * time.Second)
		s.expectHolder("fleet-session-r-0", me)
		s.reported = nil
		s.write(name, heldBy(another))
		s.run(3 * time.Second)
		s.expectHolder("fleet-session-r-0", me)
		s.step(Idle{Slot: 0, Ticket: s.reported[0].Ticket})
		s.exits(ReasonLeft, true)
	})
}

func TestSuspendedIdle(t *testing.T) {
	away := on("fleet-session-r-0", member.Update, member.Unanswered, false)
	suspend := func(t *testing.T) (s *stage, ticket uint64) {
		t.Helper()
		s, _ = stageThatHolds(t)
		s.idle, s.fate = false, away
		s.run(9500 * time.Millisecond)
		return s, s.reported[len(s.reported)-1].Ticket
	}
	t.Run("an answer to another ticket does not count", func(t *testing.T) {
		s, ticket := suspend(t)
		s.step(Idle{Slot: Everything, Ticket: ticket - 1})
		s.run(2 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("an answer for one slot does not count", func(t *testing.T) {
		s, ticket := suspend(t)
		s.step(Idle{Slot: 0, Ticket: ticket})
		s.run(2 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("a session that acts again does not exit for what was in flight at the fence", func(t *testing.T) {
		s, _ := suspend(t)
		s.fate, s.idle = nil, true
		s.run(time.Second)
		s.entitled(0, true)
		s.step(Leaving{})
		s.run(6 * time.Second)
		s.exits(ReasonLeft, true)
	})
	t.Run("once nothing is in flight the session waits for as long as it takes", func(t *testing.T) {
		s, ticket := suspend(t)
		s.step(Idle{Slot: Everything, Ticket: ticket})
		s.run(time.Minute)
		if s.exit != nil {
			t.Fatalf("want it to wait, since nothing is in flight, got %+v", s.exit)
		}
	})
}

func TestHandOverAcrossTheFence(t *testing.T) {
	s, name := stageThatHolds(t)
	s.idle = false
	s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
	s.run(6 * time.Second)
	// The hand-over begins late, so that it is not cancelled because it takes longer than
	// UnfitHandOver.
	s.write(name, assign("r-1"))
	stopped := s.reported[0].Ticket
	s.run(3 * time.Second)
	s.step(Idle{Slot: Everything, Ticket: s.reported[1].Ticket})
	s.fate = nil
	s.run(time.Second)
	cancelled := s.reported[len(s.reported)-1].Ticket
	s.changes(Change{Slot: 0, Epoch: 1, Kind: Stopped}, Change{Slot: Everything, Kind: Suspended}, Change{Slot: 0, Epoch: 1, Kind: Cancelled})
	s.entitled(0, false)
	s.step(Idle{Slot: 0, Ticket: stopped})
	s.expectHolder(name, me)
	s.step(Idle{Slot: 0, Ticket: cancelled})
	s.expectHolder(name, "")
}

func TestCancelledHandOver(t *testing.T) {
	cancelled := func(t *testing.T) (s *stage, name string) {
		t.Helper()
		s, name = stageThatHolds(t)
		s.idle = false
		s.write(name, assign("r-1"))
		s.run(31 * time.Second)
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Stopped}, Change{Slot: 0, Epoch: 1, Kind: Cancelled})
		return s, name
	}
	t.Run("the process has 15 s more", func(t *testing.T) {
		s, _ := cancelled(t)
		s.run(13 * time.Second)
		if s.exit != nil {
			t.Fatalf("exit %+v", s.exit)
		}
		s.run(2 * time.Second)
		s.exits(ReasonInFlight, false)
	})
	t.Run("it is cancelled once", func(t *testing.T) {
		s, _ := cancelled(t)
		s.run(10 * time.Second)
		s.changes()
	})
	t.Run("the answer to the cancellation releases the slot", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write(name, assign("r-1"))
		s.run(31 * time.Second)
		s.step(Idle{Slot: 0, Ticket: s.reported[0].Ticket})
		s.expectHolder(name, me)
		s.step(Idle{Slot: 0, Ticket: s.reported[1].Ticket})
		s.expectHolder(name, "")
	})
	t.Run("reverted", func(t *testing.T) {
		s, name := cancelled(t)
		s.write(name, assign("r-0"))
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Resumed})
		s.entitled(0, true)
		s.idle = true
		s.write(name, assign("r-1"))
		s.expectHolder(name, "")
	})
}
