package membership

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// renewed makes the observer send a renewal, and returns what the watch shows of it.
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
	t.Run("a renewal that is not observed for 4 s ends it, regardless of what was sent since", func(t *testing.T) {
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
	t.Run("one observed renewal does not account for all", func(t *testing.T) {
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
	t.Run("an earlier one that is seen again is none of those awaited", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1)
		earlier := sessionLease(me, "own", 2000)
		earlier.Spec.RenewTime = newMicroTime(at(28).Wall)
		o.renewed(30)
		o.Observe(at(31), earlier, true)
		o.Advance(at(34))
		expect(t, o, false)
	})
	t.Run("the last observed renewal accounts for all", func(t *testing.T) {
		o := newObserver()
		o.watch(30, 0.1)
		o.renewed(30)
		o.Observe(at(32.5), o.renewed(32), true)
		o.Advance(at(35))
		expect(t, o, true)
	})
	t.Run("one that is observed late does not begin it", func(t *testing.T) {
		o := newObserver()
		mine := o.renewed(30)
		o.Observe(at(34), mine, true)
		expect(t, o, false)
		o.Observe(at(36), o.renewed(35), true)
		expect(t, o, true)
	})
	t.Run("one that a live read shows does not count as observed", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(31), o.renewed(30), false)
		expect(t, o, false)
	})
	t.Run("nor does one of another session", func(t *testing.T) {
		o := newObserver()
		o.renewed(30)
		theirs := sessionLease(other, "u", 1)
		theirs.Spec.RenewTime = newMicroTime(at(3600).Wall)
		o.Observe(at(31), theirs, true)
		expect(t, o, false)
	})
}

func TestMissingLeasesThatReturn(t *testing.T) {
	t.Run("an older version than the one that is gone is not news", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Missed(at(1), "r-1")
		if o.Observe(at(2), sessionLease(other, "u", 4), true) || !isEmpty(o.Peer("r-1")) {
			t.Errorf("got %+v", o.Peer("r-1"))
		}
		o.watch(60, 0.1)
		if silence, _ := o.Silence(at(60), "r-1"); silence != 0 {
			t.Errorf("silence of a Lease that is gone: got %v", silence)
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
	t.Run("a Lease that was created after another proves nothing for 15 s", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Missed(at(1), "r-1")
		if !o.Observe(at(2), sessionLease("r-1_ccccc", "v", 6), true) {
			t.Error("want it to be news")
		}
		for seconds, want := range map[float64]Judgement{16.9: Expiring, 17: Dead} {
			if got := o.Judge(at(seconds), other, sessionLease("r-1_ccccc", "v", 6)); got != want {
				t.Errorf("at %v s: want %s, got %s", seconds, want, got)
			}
		}
		if seen, ok := o.Death(at(3), other); !ok || seen != at(17) {
			t.Errorf("want it to look dead at 17 s, got %v (%v)", seen.Monotonic, ok)
		}
	})
	t.Run("nor does one that was missing at the first call", func(t *testing.T) {
		o := newObserver()
		o.Judge(at(1), other, nil)
		o.Observe(at(2), sessionLease("r-1_ccccc", "v", 6), true)
		o.Observe(at(3), sessionLease("r-1_ccccc", "v", 7), true)
		if got := o.Judge(at(16.9), other, sessionLease("r-1_ccccc", "v", 7)); got != Expiring {
			t.Errorf("want %s, got %s", Expiring, got)
		}
	})
	t.Run("nor does one whose predecessor was not observed to be gone", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		if !o.Observe(at(2), sessionLease(other, "v", 6), true) {
			t.Error("want another Lease to be news")
		}
		o.Observe(at(3), sessionLease("r-1_ccccc", "v", 7), true)
		if got := o.Judge(at(16.9), other, sessionLease("r-1_ccccc", "v", 7)); got != Expiring {
			t.Errorf("want %s, got %s", Expiring, got)
		}
	})
	t.Run("a Lease that a read shows older than it was proves nothing for 15 s", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Correct(at(20), sessionLease("r-1_ccccc", "u", 3))
		if got := o.Judge(at(34.9), other, sessionLease("r-1_ccccc", "u", 3)); got != Expiring {
			t.Errorf("want %s, got %s", Expiring, got)
		}
	})
	t.Run("a read that shows another Lease, older than the one that is known, proves nothing", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		if got := o.Judge(at(60), other, sessionLease("r-1_ccccc", "v", 3)); got != Expiring {
			t.Errorf("want %s, got %s", Expiring, got)
		}
	})
	t.Run("a read that shows none replaces what was known", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(0), sessionLease(other, "u", 5), true)
		o.Judge(at(20), other, nil)
		if seen, ok := o.Death(at(21), other); !ok || seen != at(35) || !isEmpty(o.Peer("r-1")) {
			t.Errorf("want it to look dead at 35 s, got %v (%v)", seen.Monotonic, ok)
		}
	})
}

func TestDeath(t *testing.T) {
	expect := func(t *testing.T, o *observer, session string, want float64) {
		t.Helper()
		for range 2 { // the time does not change at the second call
			if seen, ok := o.Death(at(20), session); !ok || seen != at(want) {
				t.Errorf("want it to look dead at %v s, got %v (%v)", want, seen.Monotonic, ok)
			}
		}
	}
	t.Run("a replica that was never observed, after 15 s", func(t *testing.T) {
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
	t.Run("a holder that is not a session, at once", func(t *testing.T) {
		expect(t, newObserver(), "by-hand", 20)
	})
	t.Run("not the holder", func(t *testing.T) {
		o := newObserver()
		o.Observe(at(3), sessionLease(other, "u", 1), true)
		if _, ok := o.Death(at(60), other); ok {
			t.Error("want the holder not to look dead")
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

// isEmpty reports whether nothing is known of a replica.
func isEmpty(p Peer) bool { return p.Replica == "" && p.Session == "" && p.Weights == "" }
