package runner

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestGroupsTakeTurns(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	q := newFairQueue(func(key string) int { return int(key[0]) }, now)
	for _, key := range []string{"a1", "a2", "a3", "b1"} {
		q.Push(key)
	}
	now.SetTime(now.Now().Add(time.Second))
	q.Push("c1")
	q.Push("b2")
	if got := q.oldest(); got != time.Second {
		t.Errorf("the oldest key has waited for %s, want 1s", got)
	}
	var got []string
	for q.Len() > 0 {
		got = append(got, q.Pop())
	}
	if diff := cmp.Diff([]string{"a1", "b1", "c1", "a2", "b2", "a3"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if got := q.oldest(); got != 0 {
		t.Errorf("nothing waits, and that since %s", got)
	}
}

// TestLongWorkOfOneSlotDoesNotStarveAnother: one worker, a hundred keys of a minute each in one group, and one in
// another that comes last.
func TestLongWorkOfOneSlotDoesNotStarveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var waited time.Duration
		r := start(t, Config[string]{
			Group: func(key string) int { return int(key[0]) },
			Reconcile: func(_ context.Context, key string) (Result, error) {
				if key == "last" {
					waited = time.Since(begun)
				}
				time.Sleep(time.Minute)
				return Result{}, nil
			},
		})
		for i := range 100 {
			r.Enqueue(fmt.Sprintf("many %d", i))
		}
		r.Enqueue("last")
		elapse(10 * time.Minute)
		if waited > 2*time.Minute {
			t.Errorf("the other slot's key waited for %s, want at most two keys' time", waited)
		}
		elapse(2 * time.Hour)
	})
}
