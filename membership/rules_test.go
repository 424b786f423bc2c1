package membership

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestSessionLeaseRecordsNotesAndCreation(t *testing.T) {
	l := newLife(t, Identification{PodUID: "p", Exclusive: true})
	l.own.Note(Notes{Confirmed: "uid"})
	l.done(100, Get)
	l.done(100, Create)
	spec, notes := l.stored.Spec, l.stored.Annotations
	if Holder(l.stored) != me || Transitions(l.stored) != 1 || *spec.LeaseDurationSeconds != 15 ||
		!spec.AcquireTime.Time.Equal(at(100).Wall) || !spec.RenewTime.Time.Equal(at(100).Wall) {
		t.Errorf("got %+v", spec)
	}
	for key, want := range map[string]string{
		v1alpha1.AnnotationCreated: me, v1alpha1.AnnotationPodUID: "p", v1alpha1.AnnotationConfirmed: "uid",
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
		t.Error("after 2 s the Lease is not marked as created any more")
	}
	l.own.Note(Notes{Leaving: true, Confirmed: "uid"})
	l.done(102, Update)
	if !l.stored.Spec.RenewTime.After(at(102).Wall) {
		t.Error("two renewals have the same time")
	}
	first := l.stored.Spec.RenewTime.Time
	l.own.Note(Notes{Leaving: true, Confirmed: "uid", Fitness: "{}"})
	l.done(102, Update)
	if !l.stored.Spec.RenewTime.After(first) {
		t.Error("two renewals have the same time")
	}
	l.own.Release(at(103))
	l.done(103, Update)
	if l.stored.Annotations[v1alpha1.AnnotationConfirmed] != "" {
		t.Error("an empty Lease still confirms")
	}
}

func TestTheAnnotationOfACreatedLeaseBelongsToTheLease(t *testing.T) {
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

func TestUnexpectedAnswers(t *testing.T) {
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
	t.Run("a restored version with the time of an attempt is not ours", func(t *testing.T) {
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
	t.Run("nor is one after another client's change of the version that the attempt named", func(t *testing.T) {
		l := started(t)
		l.unanswered(2, Update, false)
		attempt := l.pending.Lease.DeepCopy()
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
		late := l.pending
		l.answer(0.1, Conflict)
		l.done(2.2, Get)
		l.pending = late
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
		late := l.pending
		l.done(2.3, Get)
		l.pending = late
		l.serve()
		l.done(2.5, Update)
		l.done(2.7, Get)
		l.fence(9.2)
	})
	t.Run("a create whose time another client has removed is an identity in use", func(t *testing.T) {
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
		t.Run("a create that took effect and was "+name+" is acquired again", func(t *testing.T) {
			l := newLife(t, Identification{})
			l.done(0, Get)
			l.unanswered(1, Create, true)
			change(l.stored)
			l.stamp()
			l.done(3, Get)
			if _, ok := l.own.Fence(); ok {
				t.Error("want the session not to hold a Lease that does not name it")
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
	t.Run("a Lease that is gone before it is acquired is created", func(t *testing.T) {
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
	t.Run("a read that does not find it ends the session", func(t *testing.T) {
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
	t.Run("after a write without an answer and without effect, with the current version", func(t *testing.T) {
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

func TestSilenceAtStartRestartsAfterAGap(t *testing.T) {
	for name, disturb := range map[string]func(l *life){
		"a read that is refused": func(l *life) { l.next(14, Get); l.answer(0, Refused) },
		"a Lease that was missing": func(l *life) {
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
