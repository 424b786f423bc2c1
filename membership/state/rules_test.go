package state

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestWhatTheLeaseSays(t *testing.T) {
	l := newLife(t, Identification{PodUID: "p", Exclusive: true})
	l.own.Note(Notes{Weights: "1:2", Confirmed: "uid"})
	l.done(100, Get)
	l.done(100, Create)
	spec, notes := l.stored.Spec, l.stored.Annotations
	if Holder(l.stored) != me || Transitions(l.stored) != 1 || *spec.LeaseDurationSeconds != 15 || !spec.AcquireTime.Time.Equal(at(100).Wall) || !spec.RenewTime.Time.Equal(at(100).Wall) {
		t.Errorf("got %+v", spec)
	}
	for key, want := range map[string]string{
		v1alpha1.AnnotationCreated: me, v1alpha1.AnnotationPodUID: "p", v1alpha1.AnnotationWeights: "1:2", v1alpha1.AnnotationConfirmed: "uid",
		v1alpha1.AnnotationCapacity: "1", v1alpha1.AnnotationLeaving: "",
	} {
		if notes[key] != want {
			t.Errorf("%s: want %q, got %q", key, want, notes[key])
		}
	}
	if l.stored.Labels[v1alpha1.LabelFleet] != "fleet" || l.stored.Labels[v1alpha1.LabelLease] != v1alpha1.LeaseOfSession {
		t.Errorf("labels: got %v", l.stored.Labels)
	}
	l.done(102, Update)
	if !l.stored.Spec.RenewTime.Time.Equal(at(102).Wall) || !l.stored.Spec.AcquireTime.Time.Equal(at(100).Wall) {
		t.Errorf("after a renewal: got %+v", l.stored.Spec)
	}
	if l.stored.Annotations[v1alpha1.AnnotationCreated] == "" {
		t.Error("after 2 s the Lease does not say any more that it was created")
	}
	l.own.Note(Notes{Leaving: true, Weights: "1:2", Confirmed: "uid"})
	l.done(102, Update)
	if !l.stored.Spec.RenewTime.Time.After(at(102).Wall) {
		t.Error("two renewals have the same time")
	}
	first := l.stored.Spec.RenewTime.Time
	l.own.Note(Notes{Leaving: true, Weights: "1:2", Confirmed: "uid,uid2"})
	l.done(102, Update)
	if !l.stored.Spec.RenewTime.Time.After(first) {
		t.Error("two renewals have the same time")
	}
	l.own.Release(at(103))
	l.done(103, Update)
	if l.stored.Annotations[v1alpha1.AnnotationConfirmed] != "" {
		t.Error("an empty Lease still confirms")
	}
}

func TestCreatedMarkIsOfTheLease(t *testing.T) {
	l := newLife(t, Identification{})
	l.store(before, "u", nil)
	l.done(0, Get)
	l.store("", "v", map[string]string{v1alpha1.AnnotationCreated: before})
	l.done(14, Get)
	l.done(14.2, Update)
	l.done(16.2, Update)
	if l.stored.Annotations[v1alpha1.AnnotationCreated] == "" {
		t.Error("the mark is gone 2 s after the Lease was first seen")
	}
	l.done(30, Update)
	if l.stored.Annotations[v1alpha1.AnnotationCreated] != "" {
		t.Error("the mark is there 15 s after the Lease was first seen")
	}
}

func TestAnswersThatNobodyWaitsFor(t *testing.T) {
	t.Run("without a request", func(t *testing.T) {
		l := started(t)
		l.own.Replied(at(1), Reply{Outcome: NotFound})
		l.fence(9)
	})
	t.Run("after the end", func(t *testing.T) {
		l := started(t)
		l.own.Release(at(1))
		l.next(1, Update)
		l.none(11)
		l.answer(10, l.serve())
		if empty, ok := l.own.Left(); empty || !ok {
			t.Errorf("want it left and not known to be empty, got %v (%v)", empty, ok)
		}
	})
}

func TestAttempts(t *testing.T) {
	t.Run("one that was sent twice conflicts with itself", func(t *testing.T) {
		l := started(t)
		l.next(2, Update)
		l.serve()
		l.answer(0.1, Conflict)
		l.done(2.2, Get)
		l.fence(11)
	})
	t.Run("a version that was restored is not ours because an attempt had its time", func(t *testing.T) {
		l := started(t)
		l.unanswered(2, Update, true)
		l.done(4, Update)
		l.done(4.2, Get)
		restored := l.stored.DeepCopy()
		l.done(4.4, Update)
		l.stored = restored
		l.stamp()
		l.done(6.4, Update)
		l.done(6.6, Get)
		l.isLost()
	})
	t.Run("nor is one after somebody's change of the version that the attempt named", func(t *testing.T) {
		l := started(t)
		l.unanswered(2, Update, false)
		attempt := l.asked.Lease.DeepCopy()
		l.stamp()
		l.done(4, Update)
		l.done(4.2, Get)
		l.stored.Spec.RenewTime = attempt.Spec.RenewTime
		l.stamp()
		l.done(4.4, Update)
		l.done(4.6, Get)
		l.isLost()
	})
	t.Run("one that takes effect after the read that looked for it is ours", func(t *testing.T) {
		l := started(t)
		l.next(2, Update)
		late := l.asked
		l.answer(0.1, Conflict)
		l.done(2.2, Get)
		l.asked = late
		l.serve()
		l.done(2.4, Update)
		l.done(2.6, Get)
		l.fence(11)
	})
	t.Run("also at the start", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.store("", "u", nil)
		l.done(0, Get)
		l.unanswered(0.2, Update, false)
		late := l.asked
		l.done(2.3, Get)
		l.asked = late
		l.serve()
		l.done(2.5, Update)
		l.done(2.7, Get)
		l.fence(9.2)
	})
	t.Run("a create whose time somebody has removed is an identity in use", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.done(0, Get)
		l.unanswered(1, Create, true)
		l.stored.Spec.RenewTime = nil
		l.stamp()
		l.done(3, Get)
		l.isLost()
	})
	for name, change := range map[string]func(l *coordinationv1.Lease){
		"emptied":          func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
		"without its time": func(l *coordinationv1.Lease) { l.Spec.RenewTime, l.Spec.HolderIdentity = nil, nil },
	} {
		t.Run("a create that took effect and was "+name+" is taken again", func(t *testing.T) {
			l := newLife(t, Identification{})
			l.done(0, Get)
			l.unanswered(1, Create, true)
			change(l.stored)
			l.stamp()
			l.done(3, Get)
			if _, ok := l.own.Fence(); ok {
				t.Error("it holds a Lease that does not name it")
			}
			l.done(3.2, Update)
			l.fence(12.2)
		})
	}
	t.Run("a Lease without renewTime is not ours", func(t *testing.T) {
		l := started(t)
		l.stored.Spec.RenewTime = nil
		l.stamp()
		l.done(2, Update)
		l.done(2.2, Get)
		l.isLost()
	})
}

func TestMissingAtStart(t *testing.T) {
	t.Run("a Lease that is gone before it is taken is created", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.store("", "u", nil)
		l.done(0, Get)
		l.stored = nil
		l.done(0.2, Update)
		l.done(0.4, Get)
		l.done(0.6, Create)
		l.fence(9.6)
	})
	t.Run("also after a refused update", func(t *testing.T) {
		l := newLife(t, Identification{})
		l.store("", "u", nil)
		l.done(20, Get)
		l.next(20.2, Update)
		l.answer(0, Refused)
		l.stored = nil
		l.done(22.2, Get)
		l.done(22.4, Create)
		l.fence(31.4)
	})
}

func TestMissingLater(t *testing.T) {
	t.Run("a read that does not find it: the end", func(t *testing.T) {
		l := started(t)
		l.stamp()
		l.done(2, Update)
		l.stored = nil
		l.done(2.2, Get)
		l.isLost()
	})
	t.Run("gone while it is released", func(t *testing.T) {
		l := started(t)
		l.own.Release(at(1))
		l.unanswered(1, Update, false)
		l.stored = nil
		l.done(3, Get)
		if empty, ok := l.own.Left(); empty || !ok || l.own.Lost() != "" {
			t.Errorf("want it left, got empty %v (%v), lost %q", empty, ok, l.own.Lost())
		}
	})
}

func TestReleaseAgain(t *testing.T) {
	t.Run("after a write without an answer and without effect, with the version that is there", func(t *testing.T) {
		l := started(t)
		l.own.Release(at(1))
		l.unanswered(1, Update, false)
		l.stamp()
		l.done(3, Get)
		l.done(3.1, Update)
		if empty, ok := l.own.Left(); !empty || !ok {
			t.Errorf("want it left and empty, got %v (%v)", empty, ok)
		}
	})
	t.Run("not on another Lease", func(t *testing.T) {
		l := started(t)
		l.own.Release(at(1))
		l.unanswered(1, Update, false)
		l.stored.UID = "another"
		l.stamp()
		l.done(3, Get)
		l.none(5)
		if empty, ok := l.own.Left(); empty || !ok {
			t.Errorf("want it left and not known to be empty, got %v (%v)", empty, ok)
		}
	})
}

func TestWhatBreaksTheSilenceAtStart(t *testing.T) {
	for name, disturb := range map[string]func(l *life){
		"a read that is refused": func(l *life) { l.next(14, Get); l.answer(0, Refused) },
		"a Lease that was away": func(l *life) {
			stored := l.stored
			l.stored = nil
			l.done(14, Get)
			l.stored = stored
			l.done(14.1, Create)
		},
		"another Lease of the same version": func(l *life) { l.stored.UID = "v"; l.done(14, Get) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, Identification{})
			l.store(before, "u", nil)
			for second := range 7 {
				l.done(2*float64(second), Get)
			}
			disturb(l)
			for _, second := range []float64{16, 18} {
				l.next(second, Get)
				l.answer(0.05, l.serve())
				l.none(second + 0.5)
			}
		})
	}
}

// renewed has the observer send a renewal, and returns what the watch shows of it.
func (o *observer) renewed(seconds float64) *coordinationv1.Lease {
	o.Renewing(at(seconds), at(seconds).Wall)
	o.version++
	mine := sessionLease(me, "own", o.version)
	mine.Spec.RenewTime = newMicroTime(at(seconds).Wall)
	return mine
}

func TestObserving(t *testing.T) {
	expect := func(t *testing.T, o *observer, want bool) {
		t.Helper()
		if _, ok := o.Observing(); ok != want {
			t.Errorf("observing: want %v, got %v", want, ok)
		}
	}
	t.Run("a failed renewal ends it", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1)
		o.Interrupt()
		expect(t, o, false)
		if o.Warm(at(30)) {
			t.Error("warm")
		}
	})
	t.Run("a renewal that is 4 s out ends it, whatever was sent since", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1)
		o.renewed(30)
		o.renewed(32)
		o.renewed(33.9)
		o.Advance(at(33.95))
		expect(t, o, true)
		o.Advance(at(34))
		expect(t, o, false)
	})
	t.Run("so does one that is not sent 4 s after it was due", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1) // the last was sent at 28 s, the next is due at 30 s
		o.Advance(at(33.9))
		expect(t, o, true)
		o.Advance(at(34))
		expect(t, o, false)
	})
	t.Run("one that comes back is not all that are out", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1)
		first := o.renewed(30)
		o.renewed(32)
		o.Observe(at(33), first, true)
		o.Advance(at(35.9))
		expect(t, o, true)
		o.Advance(at(36))
		expect(t, o, false)
	})
	t.Run("an earlier one that is seen again is none of those that are out", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1)
		earlier := sessionLease(me, "own", 2000)
		earlier.Spec.RenewTime = newMicroTime(at(28).Wall)
		o.renewed(30)
		o.Observe(at(31), earlier, true)
		o.Advance(at(34))
		expect(t, o, false)
	})
	t.Run("the last one that comes back is all that were out", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1)
		o.renewed(30)
		o.Observe(at(32.5), o.renewed(32), true)
		o.Advance(at(35))
		expect(t, o, true)
	})
	t.Run("one that comes back late does not begin it", func(t *testing.T) {
		o := newObserver()
		mine := o.renewed(30)
		o.Observe(at(34), mine, true)
		expect(t, o, false)
		o.Observe(at(36), o.renewed(35), true)
		expect(t, o, true)
	})
	t.Run("one that a live read shows has not come back", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(31), o.renewed(30), false)
		expect(t, o, false)
	})
	t.Run("nor has one of another session", func(t *testing.T) {
		o := newObserver()
		o.renewed(30)
		theirs := sessionLease(other, "u", 1)
		theirs.Spec.RenewTime = newMicroTime(at(3600).Wall)
		o.Observe(at(31), theirs, true)
		expect(t, o, false)
	})
}

func TestGoneAndBack(t *testing.T) {
	t.Run("an older version than the one that is gone is no news", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Missed(at(1), "r-1")
		if o.Observe(at(2), sessionLease(other, "u", 4), true) || o.Peer("r-1") != (Peer{}) {
			t.Errorf("got %+v", o.Peer("r-1"))
		}
		o.watch(60, 0.1)
		if silence, _ := o.Silence(at(60), "r-1"); silence != 0 {
			t.Errorf("silence of what is gone: got %v", silence)
		}
	})
	t.Run("the version that was missed is news when it is seen again", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Missed(at(1), "r-1")
		if !o.Observe(at(2), sessionLease(other, "u", 5), true) || o.Peer("r-1").Session != other {
			t.Errorf("got %+v", o.Peer("r-1"))
		}
	})
	t.Run("a read that shows a Lease that was missing until then", func(t *testing.T) {
		o := newObserver()
		o.Missed(at(1), "r-1")
		if o.Correct(at(2), sessionLease(other, "u", 5)); o.Peer("r-1").Session != other {
			t.Errorf("got %+v", o.Peer("r-1"))
		}
	})
	t.Run("a Lease that was made after another proves nothing for 15 s", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Missed(at(1), "r-1")
		if !o.Observe(at(2), sessionLease("r-1_ccccc", "v", 6), true) {
			t.Error("want it to be news")
		}
		for seconds, want := range map[float64]Judgement{16.9: Doomed, 17: Dead} {
			if got := o.Judge(at(seconds), other, sessionLease("r-1_ccccc", "v", 6)); got != want {
				t.Errorf("at %v s: want %s, got %s", seconds, want, got)
			}
		}
		if seen, ok := o.Death(at(3), other); !ok || seen != at(17) {
			t.Errorf("want it to look dead at 17 s, got %v (%v)", seen.Monotonic, ok)
		}
	})
	t.Run("nor does one that was missing when it was first asked for", func(t *testing.T) {
		o := newObserver()
		o.Judge(at(1), other, nil)
		o.Observe(at(2), sessionLease("r-1_ccccc", "v", 6), true)
		o.Observe(at(3), sessionLease("r-1_ccccc", "v", 7), true)
		if got := o.Judge(at(16.9), other, sessionLease("r-1_ccccc", "v", 7)); got != Doomed {
			t.Errorf("want %s, got %s", Doomed, got)
		}
	})
	t.Run("nor does one whose predecessor went unseen", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		if !o.Observe(at(2), sessionLease(other, "v", 6), true) {
			t.Error("want another Lease to be news")
		}
		o.Observe(at(3), sessionLease("r-1_ccccc", "v", 7), true)
		if got := o.Judge(at(16.9), other, sessionLease("r-1_ccccc", "v", 7)); got != Doomed {
			t.Errorf("want %s, got %s", Doomed, got)
		}
	})
	t.Run("a Lease that a read shows older than it was proves nothing for 15 s", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Correct(at(20), sessionLease("r-1_ccccc", "u", 3))
		if got := o.Judge(at(34.9), other, sessionLease("r-1_ccccc", "u", 3)); got != Doomed {
			t.Errorf("want %s, got %s", Doomed, got)
		}
	})
	t.Run("a read that shows another Lease, older than the one that is known, proves nothing", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		if got := o.Judge(at(60), other, sessionLease("r-1_ccccc", "v", 3)); got != Doomed {
			t.Errorf("want %s, got %s", Doomed, got)
		}
	})
	t.Run("a read that shows none is what is known", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Judge(at(20), other, nil)
		if seen, ok := o.Death(at(21), other); !ok || seen != at(35) || o.Peer("r-1") != (Peer{}) {
			t.Errorf("want it to look dead at 35 s, got %v (%v)", seen.Monotonic, ok)
		}
	})
}

func TestDeath(t *testing.T) {
	expect := func(t *testing.T, o *observer, session string, want float64) {
		t.Helper()
		for range 2 { // the time does not move when it is asked for once more
			if seen, ok := o.Death(at(20), session); !ok || seen != at(want) {
				t.Errorf("want it to look dead at %v s, got %v (%v)", want, seen.Monotonic, ok)
			}
		}
	}
	t.Run("a replica that nobody has seen, after 15 s", func(t *testing.T) {
		o := newObserver()
		expect(t, o, other, 35)
		if seen, _ := o.Death(at(25), other); seen != at(35) {
			t.Errorf("want 35 s, counted from the first time, got %v", seen.Monotonic)
		}
	})
	t.Run("a Lease that is gone, 15 s after", func(t *testing.T) {
		o := newObserver()
		o.Missed(at(3), "r-1")
		expect(t, o, other, 18)
	})
	t.Run("a Lease with another holder, at once", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(3), sessionLease("r-1_ccccc", "u", 1), true)
		expect(t, o, other, 3)
	})
	t.Run("one that was created, 15 s after it was seen", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(3), sessionLease("r-1_ccccc", "u", 1, v1alpha1.AnnotationCreated), true)
		expect(t, o, other, 18)
	})
	t.Run("what is no session, at once", func(t *testing.T) {
		expect(t, newObserver(), "by-hand", 20)
	})
	t.Run("not the holder", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(3), sessionLease(other, "u", 1), true)
		if _, ok := o.Death(at(60), other); ok {
			t.Error("looks dead")
		}
	})
}

func TestCapacity(t *testing.T) {
	for text, want := range map[string]float64{"": 1, "2.5": 2.5, "0": 1, "-2": 1, "much": 1, "NaN": 1, "1e999": 1} {
		l := sessionLease(other, "u", 1)
		Annotate(l, v1alpha1.AnnotationCapacity, text)
		o := newObserver()
		o.Observe(at(0), l, true)
		if got := o.Peer("r-1").Capacity; got != want {
			t.Errorf("%q: want %v, got %v", text, want, got)
		}
	}
}

func newMicroTime(t time.Time) *metav1.MicroTime {
	micro := metav1.NewMicroTime(t)
	return &micro
}
