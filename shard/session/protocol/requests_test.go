package protocol

import (
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestRequestsAtOnce(t *testing.T) {
	t.Run("at most 32 for slot Leases, and one more after an answer", func(t *testing.T) {
		s := newStage(t, 40)
		var open []uint64
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if strings.HasPrefix(r.Name, "fleet-slot-") {
				open = append(open, r.ID)
				return unanswered, false
			}
			return member.Done, true
		}
		s.step(Elected{})
		if len(open) != 32 {
			t.Fatalf("want 32 requests, got %d", len(open))
		}
		s.step(Replied{member.Reply{ID: open[0], Outcome: member.Refused}})
		if len(open) != 33 {
			t.Errorf("want one more after an answer, got %d", len(open))
		}
		s.step(Replied{member.Reply{ID: open[0], Outcome: member.Refused}}) // the network may repeat an answer
		s.step(Replied{member.Reply{ID: 1 << 40, Outcome: member.Done}})
		if len(open) != 33 {
			t.Errorf("want none after the same answer, got %d", len(open))
		}
	})
	t.Run("one for each slot Lease", func(t *testing.T) {
		s := newStage(t, 8)
		update := s.unanswered("fleet-slot-000", member.Update, false)
		name := s.slot(0, "", "r-0")
		first := update.ID
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		if update.ID != first {
			t.Error("want one request at a time, got a second one")
		}
	})
	t.Run("what was refused is sent again after 500 ms", func(t *testing.T) {
		s := newStage(t, 8)
		updates := s.counted("fleet-slot-000", member.Update, member.Refused)
		s.slot(0, "", "r-0")
		s.run(400 * time.Millisecond)
		if *updates != 1 {
			t.Errorf("want one within 400 ms, got %d", *updates)
		}
		s.run(200 * time.Millisecond)
		if *updates != 2 {
			t.Errorf("want another after 500 ms, got %d", *updates)
		}
	})
	t.Run("a read without an answer is sent again after 500 ms", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Conflict, false)
		name := s.slot(0, "", "")
		reads := s.counted(name, member.Get, member.Conflict)
		update := s.fate
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name == name && r.Verb == member.Update {
				return member.Conflict, false
			}
			return update(r)
		}
		s.write(name, assign("r-0"))
		s.run(400 * time.Millisecond)
		if *reads != 1 {
			t.Errorf("want one read within 400 ms, got %d", *reads)
		}
	})
	t.Run("what conflicts is read before it is written again", func(t *testing.T) {
		s := newStage(t, 8)
		var verbs []member.Verb
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name != "fleet-slot-000" {
				return member.Done, true
			}
			verbs = append(verbs, r.Verb)
			if len(verbs) == 1 {
				return member.Conflict, false
			}
			return member.Done, true
		}
		s.blind = true
		s.slot(0, "", "r-0")
		s.run(time.Second)
		if len(verbs) != 3 || verbs[1] != member.Get || verbs[2] != member.Update {
			t.Errorf("want update, get, update, got %v", verbs)
		}
	})
	t.Run("an older version that a live read shows is what etcd was restored to", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.blind, s.idle = true, false
		restored := s.leases[name].DeepCopy()
		heldBy(another)(restored)
		restored.ResourceVersion = "50"
		s.leases[name] = restored
		s.fate = func(member.Request) (member.Outcome, bool) {
			return member.Done, true
		}
		s.step(Seen{func() *coordinationv1.Lease {
			l := restored.DeepCopy()
			l.ResourceVersion = "10000"
			heldBy(me)(l)
			assign("r-1")(l)
			return l
		}()})
		s.step(Idle{Slot: 0, Ticket: s.reported[0].Ticket})
		s.changes(Change{Slot: 0, Epoch: 1, Kind: Stopped}, Change{Slot: 0, Epoch: 1, Kind: Lost})
	})
	t.Run("an answer to a write does not count as a live read that began with it", func(t *testing.T) {
		s := newStage(t, 8)
		update := s.unanswered("fleet-slot-000", member.Update, true)
		name := s.slot(0, "", "r-0")
		acquired := s.leases[name]
		s.fate = nil
		s.idle = false
		s.step(Seen{acquired})
		s.write(name, heldBy(another))
		s.reported = nil
		s.step(Replied{member.Reply{ID: update.ID, Outcome: member.Done, Lease: acquired}})
		s.changes()
		s.entitled(0, false)
	})
}

func TestReadsOfASessionLease(t *testing.T) {
	dying := func(t *testing.T, outcome member.Outcome) (s *stage, name string, reads *int) {
		t.Helper()
		s = newStage(t, 8)
		s.write("fleet-session-r-1", heldBy(""))
		reads = s.counted("fleet-session-r-1", member.Get, outcome)
		return s, s.slot(0, another, "r-0"), reads
	}
	t.Run("one at a time", func(t *testing.T) {
		s, name, reads := dying(t, unanswered)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		s.run(5 * time.Second)
		if *reads != 1 {
			t.Errorf("want one read, got %d", *reads)
		}
	})
	t.Run("again after 500 ms, until it is answered", func(t *testing.T) {
		s, name, reads := dying(t, member.Unanswered)
		s.run(2 * time.Second)
		if *reads < 4 || *reads > 5 {
			t.Errorf("want a read every 500 ms, got %d in 2 s", *reads)
		}
		s.fate = nil
		s.run(600 * time.Millisecond)
		s.expectHolder(name, me)
	})
	t.Run("a name that no session can have needs none", func(t *testing.T) {
		s := newStage(t, 8)
		requestedAt := 0
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Verb == member.Get {
				requestedAt++
			}
			return member.Done, true
		}
		s.expectHolder(s.slot(0, "by-hand", "r-0"), me)
		if requestedAt != 0 {
			t.Errorf("want no read, got %d", requestedAt)
		}
	})
}

func TestConfirmations(t *testing.T) {
	confirmed := func(s *stage) string { return s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationConfirmed] }
	quarantined := func(sessions, uid string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationLeaseUID, uid)
			member.Annotate(l, v1alpha1.AnnotationQuarantine, sessions)
		}
	}
	t.Run("of a slot Lease that lists us", func(t *testing.T) {
		s := newStage(t, 8)
		s.write(s.slot(0, "", "r-1"), quarantined(me, "slot-0"))
		s.run(3 * time.Second) // with the next renewal
		if confirmed(s) != "slot-0" {
			t.Errorf("got %q", confirmed(s))
		}
	})
	t.Run("not of a slot Lease that lists others, nor before a leader has listed the sessions", func(t *testing.T) {
		s := newStage(t, 8)
		s.write(s.slot(0, "", "r-1"), quarantined(another, "slot-0"))
		s.write(s.slot(1, "", "r-1"), quarantined(me, "an-earlier-one"))
		s.run(3 * time.Second)
		if confirmed(s) != "" {
			t.Errorf("got %q", confirmed(s))
		}
	})
	t.Run("not of a slot that we hold", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write(name, assign("r-1"))
		s.fate = on(name, member.Update, member.Unanswered, false)
		s.step(Idle{Slot: 0, Ticket: s.reported[0].Ticket})
		s.write(name, quarantined(me, "slot-0"))
		s.run(3 * time.Second)
		if confirmed(s) != "" {
			t.Errorf("got %q", confirmed(s))
		}
	})
	t.Run("our own confirmation is not needed", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, "", "r-1")
		s.write(name, func(l *coordinationv1.Lease) {
			quarantined(me, "slot-0")(l)
			assign("r-0")(l)
		})
		reads := s.counted("fleet-session-r-0", member.Get, member.Unanswered)
		s.run(16 * time.Second)
		s.expectHolder(name, me)
		if *reads != 0 {
			t.Errorf("want no read of our own Lease, got %d", *reads)
		}
	})
}

func TestRecordedWeights(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "0": 0, "5": 5, "-5": 0, "much": 0, "99999999999999999999": 0} {
		s := leads(t)
		s.write(s.slot(0, "", "r-1"), func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationWeight, text) })
		if got := s.replica.Facts(at(s.now)).Slots[0].Weight; got != want {
			t.Errorf("%q: want %d, got %d", text, want, got)
		}
	}
	t.Run("a slot without a reported weight keeps the recorded one", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, "", "")
		s.write(name, func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationWeight, "5")
			assign("r-0")(l)
		})
		s.expectHolder(name, me)
		s.write(name, assign("r-1"))
		s.expectHolder(name, "")
		if got := s.leases[name].Annotations[v1alpha1.AnnotationWeight]; got != strconv.Itoa(5) {
			t.Errorf("want 5, got %q", got)
		}
	})
}

func TestRestoredWatch(t *testing.T) {
	older := func(s *stage, name string) []*coordinationv1.Lease {
		old := s.leases[name].DeepCopy()
		old.ResourceVersion = "50"
		return []*coordinationv1.Lease{old, s.leases["fleet-session-r-0"]}
	}
	t.Run("a list that is not older requests nothing", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		lists := s.counted("", member.List, member.Unanswered)
		s.step(Listed{s.all()})
		if *lists != 0 {
			t.Errorf("want no list, got %d", *lists)
		}
	})
	t.Run("an older one requests one list", func(t *testing.T) {
		s, name := stageThatHolds(t)
		lists := s.counted("", member.List, unanswered)
		s.step(Listed{older(s, name)})
		s.step(Listed{older(s, name)})
		if *lists != 1 {
			t.Errorf("want one list, got %d", *lists)
		}
	})
	t.Run("a list without an answer shows nothing", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.fate = on("", member.List, member.Unanswered, false)
		s.step(Listed{older(s, name)})
		s.changes()
		s.entitled(0, true)
	})
}
