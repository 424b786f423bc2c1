package membership

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const me, before = "r-0_aaaaa", "r-0_zzzzz"

func at(seconds float64) Moment {
	d := time.Duration(seconds * float64(time.Second))
	return Moment{Monotonic: d, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(d)}
}

// life is a session's Lease in a test, with an API server of one Lease.
type life struct {
	t   *testing.T
	own *Own
	now float64
	rv  int
	// stored is the Lease as the API server has it.
	stored  *coordinationv1.Lease
	pending Request
}

func newLife(t *testing.T, id Identification) *life {
	t.Helper()
	id.Fleet, id.Namespace, id.Replica, id.Session, id.Capacity = "fleet", "ns", "r-0", me, 1
	return &life{t: t, own: NewOwn(DefaultConfig(), id), rv: 10}
}

// store puts a Lease on the API server, as a write of another client.
func (l *life) store(holder string, uid types.UID, annotations map[string]string) {
	l.stored = &coordinationv1.Lease{}
	l.stored.Name, l.stored.UID, l.stored.Annotations = "fleet-session-r-0", uid, annotations
	if holder != "" {
		l.stored.Spec.HolderIdentity = &holder
	}
	l.stamp()
}

func (l *life) stamp() {
	l.rv++
	l.stored.ResourceVersion = string(rune('0'+l.rv/10)) + string(rune('0'+l.rv%10))
}

// next asserts the next request at a time.
func (l *life) next(seconds float64, want Verb) {
	l.t.Helper()
	l.now = seconds
	request, ok := l.own.Next(at(seconds))
	if !ok || request.Verb != want {
		l.t.Fatalf("at %v s: want a request to %s, got %q (%v)", seconds, want, request.Verb, ok)
	}
	if request.Need != NeedNothing || request.Name != "fleet-session-r-0" {
		l.t.Errorf("request %+v: want it about the session's own Lease, and to need nothing", request)
	}
	if request.Verb == Update && (request.Lease.UID == "" || request.Lease.ResourceVersion == "") {
		l.t.Errorf("update without UID or resourceVersion: %+v", request.Lease.ObjectMeta)
	}
	if _, ok := l.own.Next(at(seconds)); ok {
		l.t.Fatalf("at %v s: a second request while the first is not answered", seconds)
	}
	l.pending = request
}

// none asserts that no request is due.
func (l *life) none(seconds float64) {
	l.t.Helper()
	if request, ok := l.own.Next(at(seconds)); ok {
		l.t.Fatalf("at %v s: want no request, got %s", seconds, request.Verb)
	}
}

// serve has the API server execute the request.
func (l *life) serve() Outcome {
	switch {
	case l.pending.Verb == Create && l.stored != nil:
		return Exists
	case l.pending.Verb != Create && l.stored == nil:
		return NotFound
	case l.pending.Verb == Update && (l.pending.Lease.UID != l.stored.UID || l.pending.Lease.ResourceVersion != l.stored.ResourceVersion):
		return Conflict
	case l.pending.Verb == Get:
		return Done
	}
	l.stored = l.pending.Lease.DeepCopy()
	if l.pending.Verb == Create {
		l.stored.UID = "created"
	}
	l.stamp()
	return Done
}

func (l *life) answer(after float64, outcome Outcome) {
	reply := Reply{Sent: at(l.now), Outcome: outcome}
	if outcome == Done {
		reply.Lease = l.stored.DeepCopy()
	}
	l.own.Replied(at(l.now+after), reply)
}

// done serves a request and answers it.
func (l *life) done(seconds float64, want Verb) {
	l.t.Helper()
	l.next(seconds, want)
	l.answer(0.1, l.serve())
}

// unanswered has a request take effect, or not, without an answer.
func (l *life) unanswered(seconds float64, want Verb, takesEffect bool) {
	l.t.Helper()
	l.next(seconds, want)
	if takesEffect {
		l.serve()
	}
	l.answer(2, Unanswered)
}

func (l *life) fence(want float64) {
	l.t.Helper()
	fence, ok := l.own.Fence()
	if !ok || fence != at(want) {
		l.t.Errorf("fence: want %v, got %v (%v); lost: %q", at(want).Monotonic, fence.Monotonic, ok, l.own.Lost())
	}
}

func (l *life) isLost() {
	l.t.Helper()
	if _, ok := l.own.Fence(); ok || l.own.Lost() == "" {
		l.t.Error("want the session permanently lost")
	}
	if _, left := l.own.Left(); left || !l.own.WakeAt().IsZero() {
		l.t.Error("want a session that has lost its Lease neither to have left nor to wait")
	}
	l.none(1e6)
}

// started returns the life of a session that has created its Lease at second 0.
func started(t *testing.T) *life {
	t.Helper()
	l := newLife(t, Identification{})
	l.done(0, Get)
	l.done(0, Create)
	l.fence(9)
	return l
}

func TestStart(t *testing.T) {
	t.Run("no Lease: it is created, and marked so until earlier sessions have passed their fences", func(t *testing.T) {
		l := started(t)
		for _, second := range []float64{2, 4, 6, 8, 10, 12, 14} {
			l.done(second, Update)
			if l.stored.Annotations[v1alpha1.AnnotationCreated] == "" {
				t.Fatalf("after %v s the Lease is not marked as created any more", second)
			}
		}
		l.done(16, Update)
		if l.stored.Annotations[v1alpha1.AnnotationCreated] != "" {
			t.Error("after 16 s the Lease is still marked as created")
		}
		l.fence(25)
	})
	t.Run("an empty Lease is acquired, and is still marked as created", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.store("", "u", map[string]string{v1alpha1.AnnotationCreated: before, v1alpha1.AnnotationLeaving: "true"})
		l.done(0, Get)
		l.done(0.5, Update)
		l.fence(9.5)
		if l.stored.Annotations[v1alpha1.AnnotationCreated] == "" || l.stored.Annotations[v1alpha1.AnnotationLeaving] != "" ||
			Transitions(l.stored) != 1 {
			t.Errorf("got %+v", l.stored)
		}
	})
	t.Run("a holder that is silent for 15 s is replaced", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.store(before, "u", nil)
		for second := range 8 {
			l.done(2*float64(second), Get)
			l.none(2*float64(second) + 1)
		}
		l.done(16, Get)
		l.done(16.1, Update)
		l.fence(25.1)
	})
	t.Run("a change, a slow answer, no answer and a gap each restart the time", func(t *testing.T) {
		for name, disturb := range map[string]func(l *life){
			"change": func(l *life) { l.stamp(); l.done(14, Get) },
			"slow":   func(l *life) { l.next(14, Get); l.answer(2, Done) },
			"none":   func(l *life) { l.unanswered(14, Get, false) },
			"gap":    func(l *life) { l.done(17, Get) },
		} {
			l := newLife(t, Identification{})
			l.store(before, "u", nil)
			for second := range 7 {
				l.done(2*float64(second), Get)
			}
			disturb(l)
			for second := 19.0; second < 29; second += 2 {
				l.done(second, Get)
				if l.none(second + 0.5); t.Failed() {
					t.Fatal(name)
				}
			}
		}
	})
	t.Run("the lock of the holder's pod proves at once that its process is gone", func(t *testing.T) {
		for _, c := range []struct {
			id   Identification
			want bool
		}{
			{Identification{PodUID: "p", Exclusive: true}, true},
			{Identification{PodUID: "p"}, false},
			{Identification{PodUID: "q", Exclusive: true}, false},
			{Identification{Exclusive: true}, false},
		} {
			l := newLife(t, c.id)
			l.store(before, "u", map[string]string{v1alpha1.AnnotationPodUID: "p"})
			l.done(0, Get)
			if _, acquired := l.own.Next(at(0.2)); acquired != c.want {
				t.Errorf("%+v: acquired at once: %v", c.id, acquired)
			}
		}
	})
	t.Run("a session without the lock does not name its pod", func(t *testing.T) {
		l := newLife(t, Identification{PodUID: "p"})
		l.done(0, Get)
		if l.done(0, Create); l.stored.Annotations[v1alpha1.AnnotationPodUID] != "" {
			t.Errorf("got %v", l.stored.Annotations)
		}
	})
	t.Run("a create without an answer is found by a read", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.done(0, Get)
		l.unanswered(1, Create, true)
		l.done(3, Get)
		l.fence(10)
	})
	t.Run("a create without an answer is never sent twice", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.done(0, Get)
		l.unanswered(1, Create, false)
		for second := 3.0; second <= 17; second += 2 {
			l.done(second, Get)
		}
		l.isLost()
	})
	t.Run("a create that is refused is sent again", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.done(0, Get)
		l.next(0, Create)
		l.answer(0, Refused)
		l.done(2, Get)
		l.done(2.2, Create)
		l.fence(11.2)
	})
	t.Run("another client creates it first", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.done(0, Get)
		l.store(before, "u", nil)
		l.done(0, Create)
		l.done(0.2, Get)
		l.none(1)
	})
	t.Run("an identity that is in use", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.store(me, "u", nil)
		l.done(0, Get)
		l.isLost()
	})
}

func TestRenew(t *testing.T) {
	t.Run("the fence counts from the send of the last renewal that was acknowledged", func(t *testing.T) {
		l := started(t)
		l.none(1.9)
		l.next(2, Update)
		l.answer(1.5, l.serve())
		l.fence(11)
		l.unanswered(4, Update, false)
		l.fence(11)
		l.done(6, Update)
		l.fence(15)
	})
	t.Run("a renewal that took effect without an answer counts from its own send", func(t *testing.T) {
		l := started(t)
		l.unanswered(2, Update, true)
		l.done(4, Update) // conflicts with it
		l.done(4.2, Get)
		l.fence(11)
		l.done(4.4, Update)
		l.fence(13.4)
	})
	t.Run("the fence passes, and a later renewal extends it", func(t *testing.T) {
		l := started(t)
		for second := 2.0; second < 60; second += 2 {
			l.unanswered(second, Update, false)
		}
		l.fence(9)
		l.done(60, Update)
		l.fence(69)
	})
	t.Run("another client annotates it", func(t *testing.T) {
		l := started(t)
		l.stored.Annotations["note"] = "kept"
		l.stamp()
		l.done(2, Update)
		l.done(2.2, Get)
		l.fence(9)
		if l.done(2.4, Update); l.stored.Annotations["note"] != "kept" {
			t.Errorf("got %v", l.stored.Annotations)
		}
		l.fence(11.4)
	})
	for name, happen := range map[string]func(l *life){
		"it is emptied":            func(l *life) { l.stored.Spec.HolderIdentity = nil },
		"another session holds it": func(l *life) { other := before; l.stored.Spec.HolderIdentity = &other },
		"it is another Lease":      func(l *life) { l.stored.UID = "another" },
		"it is older than it was":  func(l *life) { l.stored.Spec.RenewTime.Time = l.stored.Spec.RenewTime.Add(-time.Second) },
	} {
		t.Run("the session ends: "+name, func(t *testing.T) {
			l := started(t)
			happen(l)
			l.stamp()
			l.done(2, Update)
			l.done(2.2, Get)
			l.isLost()
		})
	}
	t.Run("the session ends: it is gone", func(t *testing.T) {
		l := started(t)
		l.stored = nil
		l.done(2, Update)
		l.isLost()
	})
	t.Run("after every outcome of every request there is a next request or the end", func(t *testing.T) {
		outcomes := []Outcome{Done, Conflict, NotFound, Exists, Unanswered, Refused}
		for _, first := range outcomes {
			for _, second := range outcomes {
				l := started(t)
				l.next(2, Update)
				l.answer(0.1, first)
				if request, ok := l.own.Next(at(5)); ok {
					l.now, l.pending = 5, request
					l.answer(0.1, second)
				}
				if _, pending := l.own.Next(at(8)); !pending && l.own.Lost() == "" {
					t.Errorf("%s, then %s: want the session lost, or a request", first, second)
				}
			}
		}
	})
}

func TestRelease(t *testing.T) {
	left := func(t *testing.T, l *life, wantEmpty bool) {
		t.Helper()
		if empty, ok := l.own.Left(); !ok || empty != wantEmpty {
			t.Errorf("left: want empty %v, got %v (%v)", wantEmpty, empty, ok)
		}
	}
	t.Run("emptied", func(t *testing.T) {
		l := started(t)
		l.own.Note(Notes{Leaving: true})
		l.done(0.2, Update)
		l.own.Release(at(1))
		if _, ok := l.own.Fence(); ok {
			t.Error("want the session not to act while it empties its Lease")
		}
		l.done(1, Update)
		left(t, l, true)
		if Holder(l.stored) != "" || l.stored.Annotations[v1alpha1.AnnotationLeaving] == "" {
			t.Errorf("got %+v", l.stored)
		}
	})
	t.Run("while a renewal is in flight", func(t *testing.T) {
		l := started(t)
		l.next(2, Update)
		l.own.Release(at(2.1))
		l.answer(0.2, l.serve())
		l.done(2.3, Update)
		left(t, l, true)
	})
	t.Run("without an answer", func(t *testing.T) {
		l := started(t)
		l.own.Release(at(1))
		l.unanswered(1, Update, true)
		l.done(3, Get)
		left(t, l, true)
	})
	t.Run("never answered", func(t *testing.T) {
		l := started(t)
		l.own.Release(at(1))
		l.unanswered(1, Update, false)
		l.unanswered(3, Get, false)
		l.none(11)
		left(t, l, false)
	})
	t.Run("another session was faster", func(t *testing.T) {
		l := started(t)
		l.store(before, "u", nil)
		l.own.Release(at(1))
		l.done(1, Update)
		l.done(1, Get)
		left(t, l, false)
	})
	t.Run("before it was held", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.own.Release(at(0))
		l.none(1)
		left(t, l, false)
	})
}

// The counts that a session of an earlier version has written to the session Lease stay until they
// are reported elsewhere. Its weights are removed at once: they are those of its slots.
func TestCountsOfAnEarlierVersionStayUntilTheyAreReportedElsewhere(t *testing.T) {
	l := newLife(t, Identification{})
	l.store("", "u", map[string]string{v1alpha1.AnnotationCounts: "before", v1alpha1.AnnotationWeights: "1:2"})
	l.done(0, Get)
	l.done(0, Update)
	if notes := l.stored.Annotations; notes[v1alpha1.AnnotationCounts] != "before" || notes[v1alpha1.AnnotationWeights] != "" {
		t.Fatalf("after the start: got %v, want the counts only", notes)
	}
	l.own.Note(Notes{Counted: true})
	l.done(2, Update)
	if counts, there := l.stored.Annotations[v1alpha1.AnnotationCounts]; there {
		t.Errorf("when they are reported elsewhere: got %q, want no counts", counts)
	}
}
