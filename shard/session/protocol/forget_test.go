package protocol

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestMemoryIsBounded(t *testing.T) {
	t.Run("of attempts to acquire that are not answered", func(t *testing.T) {
		s := newStage(t, 8)
		s.fate = on("fleet-slot-000", member.Update, member.Unanswered, false)
		name := s.slot(0, "", "r-0")
		s.run(10 * time.Minute)
		if got := len(s.replica.slots[0].attempts); got != mostAttempts {
			t.Errorf("%d attempts are remembered, want the last %d", got, mostAttempts)
		}
		s.fate = nil
		s.run(5 * time.Second)
		s.expectHolder(name, me)
		s.entitled(0, true)
	})
	t.Run("a forgotten attempt that takes effect is undone, and the slot is acquired once more", func(t *testing.T) {
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
		s.expectHolder(name, me)
		s.entitled(0, true)
	})
	t.Run("of sessions that have ended", func(t *testing.T) {
		s := newStage(t, 8)
		name := s.slot(0, "", "r-9")
		for n := range 5000 {
			s.now += 2 * time.Second
			s.write(name, func(l *coordinationv1.Lease) {
				assign("r-0")(l)
				heldBy(member.Identity(fmt.Sprintf("r-%d", n), "zzzzz"))(l)
			})
		}
		if got := len(s.replica.proofs.sessions) + s.replica.others.Known() + len(s.replica.table.sessions); got > 2000 {
			t.Errorf("something is remembered of %d sessions and replicas, one of which is named by a Lease", got)
		}
	})
	t.Run("of reports of replicas without a session Lease", func(t *testing.T) {
		s := newStage(t, 8)
		s.report("r-0", me, "0:7", "a")
		for n := range 1000 {
			s.report(fmt.Sprintf("q-%d", n), "q_zzzzz", "0:7", "a")
		}
		if got := len(s.replica.table.reports); got > 2*forgetFrom || s.replica.table.reportOf("r-0").counts != "a" {
			t.Errorf("%d reports are remembered, want at most %d, and that of the only replica among them", got, 2*forgetFrom)
		}
	})
}

// A session is proven dead only by a read that was requested after the session was seen on the
// slot, also after an older proof was forgotten.
func TestAForgottenSessionIsReadAgain(t *testing.T) {
	s := newStage(t, 8)
	s.write("fleet-session-r-1", heldBy(""))
	name := s.slot(0, another, "r-0")
	s.expectHolder(name, me) // another was proven dead
	for n := range 5000 {
		s.now += 2 * time.Second
		s.slot(1, member.Identity(fmt.Sprintf("q-%d", n), "zzzzz"), "r-0")
	}
	if s.replica.proofs.sessions[another] != nil {
		t.Fatal("want the proof forgotten")
	}
	s.write("fleet-session-r-1", heldBy(another)) // by hand: no session gets its Lease twice
	s.expectHolder(s.slot(2, another, "r-0"), another)
}

// crowded returns a leader that remembers a number of proofs, and as many replicas less one without
// a Lease, which are named q-<n>. The replica itself is one.
func crowded(t *testing.T, proofs int) *Session {
	t.Helper()
	s := newStage(t, 8)
	s.step(Elected{})
	r := s.replica
	for n := range proofs {
		name := fmt.Sprintf("q-%d", n)
		r.proofs.sessions[name+"_zzzzz"], r.table.sessions[name], r.leader.deaths[name] = &proof{}, &sessionContent{}, &death{}
		if n > 0 {
			r.others.Missed(at(time.Second), name)
		}
	}
	return r
}

func TestForget(t *testing.T) {
	late := at(time.Hour)
	t.Run("nothing, while little is remembered", func(t *testing.T) {
		r := crowded(t, 127)
		r.proofs.sessions["more_zzzzz"] = &proof{}
		if r.observer.forget(late); r.observer.remembered() != 255 {
			t.Errorf("want all 255 kept, got %d", r.observer.remembered())
		}
	})
	t.Run("what no Lease names", func(t *testing.T) {
		r := crowded(t, 128)
		r.proofs.sessions["q-1_zzzzz"].pending = true
		r.leader.deaths["q-1"].pending = true
		r.slots[0].holder, r.slots[1].quarantine = "q-2_zzzzz", []string{"q-3_zzzzz", "q-4_yyyyy"}
		r.others.Observe(late, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "fleet-session-q-5", UID: "q-5"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("q-5_zzzzz")},
		}, true)
		r.observer.forget(late)
		for _, kept := range []struct {
			what      string
			want, got []string
		}{
			{"proofs", []string{"q-1_zzzzz", "q-2_zzzzz", "q-3_zzzzz"}, slices.Sorted(maps.Keys(r.proofs.sessions))},
			{"words", []string{"q-5", "r-0"}, slices.Sorted(maps.Keys(r.table.sessions))},
			{"deaths", []string{"q-1", "q-5"}, slices.Sorted(maps.Keys(r.leader.deaths))},
		} {
			if diff := cmp.Diff(kept.want, kept.got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", kept.what, diff)
			}
		}
		if got := r.others.Known(); got != 5 {
			t.Errorf("want r-0 and q-2 to q-5 known, got %d replicas", got)
		}
	})
	t.Run("again when it has doubled", func(t *testing.T) {
		r := crowded(t, 200)
		for _, p := range r.proofs.sessions {
			p.pending = true
		}
		r.observer.forget(late) // 200 proofs and this replica are left
		for n := range 201 {
			r.proofs.sessions[fmt.Sprintf("p-%d_zzzzz", n)] = &proof{}
			if n == 199 {
				if r.observer.forget(late); r.observer.remembered() != 401 {
					t.Errorf("want all 401 kept, got %d", r.observer.remembered())
				}
			}
		}
		if r.observer.forget(late); r.observer.remembered() != 201 {
			t.Errorf("want the new ones forgotten, got %d", r.observer.remembered())
		}
	})
}
