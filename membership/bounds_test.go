package membership

import "testing"

func TestMemoryIsBounded(t *testing.T) {
	t.Run("of renewals without an answer, and the session continues after an answer", func(t *testing.T) {
		l := started(t)
		second := 2.0
		for ; second < 4000; second += 4 {
			l.unanswered(second, Update, false)
		}
		if got := len(l.own.attempts); got != mostAttempts {
			t.Errorf("%d attempts are remembered, want the last %d", got, mostAttempts)
		}
		l.unanswered(second, Update, true)
		l.done(second+4, Update) // conflicts with its own renewal
		l.done(second+4.2, Get)
		l.fence(second + 9)
	})
	t.Run("any of many renewals without an answer may have taken effect", func(t *testing.T) {
		for _, which := range []int{0, 1, 500, 998} {
			l := started(t)
			second, tried := 2.0, []Request{}
			for ; second < 4000; second += 4 {
				l.next(second, Update)
				tried = append(tried, l.pending)
				l.answer(2, Unanswered)
			}
			l.pending = tried[which]
			l.serve()
			l.done(second, Update) // conflicts with its own renewal
			l.done(second+0.2, Get)
			if fence, ok := l.own.Fence(); !ok || fence.Monotonic > at(2+4*float64(which)+9).Monotonic {
				t.Errorf("attempt %d: want the session to continue, with a fence of 9 s after its send at most, got %v (%v)",
					which, fence.Monotonic, ok)
			}
			l.done(second+0.4, Update)
			l.fence(second + 9.4)
		}
	})
	t.Run("of renewals that are not observed", func(t *testing.T) {
		o := newObserver()
		o.watch(20, 0.1)
		for ; o.now < 4000; o.now += 2 {
			o.Advance(at(o.now))
			o.Renewing(at(o.now), at(o.now).Wall)
		}
		if got := len(o.out); got != mostAttempts {
			t.Errorf("%d renewals are remembered, want %d", got, mostAttempts)
		}
		if _, observing := o.Observing(); observing {
			t.Error("want the silence of others not to count while no renewal is observed")
		}
		o.watch(o.now+4, 0.1)
		if _, observing := o.Observing(); !observing {
			t.Error("want the silence of others to count while renewals are observed")
		}
	})
}

func TestAReplicaWhoseLeaseHasLongBeenMissingIsForgotten(t *testing.T) {
	o := newObserver()
	keep := func(replica string) bool { return replica == "r-2" }
	for _, session := range []string{"r-1_bbbbb", "r-2_bbbbb", "r-3_bbbbb"} {
		o.Observe(at(0), sessionLease(session, "u", 1), true)
	}
	o.Missed(at(10), "r-1")
	o.Missed(at(10), "r-2")
	o.Forget(at(600), keep)
	if o.Known() != 3 {
		t.Errorf("%d replicas are known before the time is over, want 3", o.Known())
	}
	o.Forget(at(611), keep)
	if o.Known() != 2 || len(o.Peers()) != 1 {
		t.Errorf("%d replicas are known, want the one that has a Lease and the one that a Lease names", o.Known())
	}
	if death, ok := o.Death(at(700), "r-1_bbbbb"); !ok || death != at(715) {
		t.Errorf("a session of a forgotten replica: want it to look dead 15 s after the first call, got %v, %v", death, ok)
	}
}
