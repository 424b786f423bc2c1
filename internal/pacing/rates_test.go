package pacing

import (
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := NewRates[string](3, 10*time.Second)
	for _, step := range []struct {
		at, wait time.Duration
	}{
		{0, 0},
		{time.Second, 0},
		{2 * time.Second, 0},
		{3 * time.Second, 7 * time.Second}, // three were done, and the first is counted until 10 s
		{10 * time.Second, 0},
		{11 * time.Second, 9 * time.Second},
		{25 * time.Second, 0},
		{65 * time.Second, 0}, // none is counted any more, and a burst is allowed again
		{65 * time.Second, 0},
		{65 * time.Second, 0},
		{65 * time.Second, 10 * time.Second},
	} {
		now := start.Add(step.at)
		if got := r.Wait("key", now); got != step.wait {
			t.Fatalf("at %s: wait %s, want %s", step.at, got, step.wait)
		}
		if step.wait == 0 {
			r.Count("key", now)
		}
		if got := r.Wait("other", now); got != 0 {
			t.Errorf("at %s another key waits %s", step.at, got)
		}
	}
	r.Forget("key")
	if got := r.Wait("key", start.Add(65*time.Second)); got != 0 {
		t.Errorf("after it was forgotten: wait %s", got)
	}
}

// A key is not forgotten while it matters, regardless of the number of others.
func TestRatesRememberKeysInUse(t *testing.T) {
	r, now := NewRates[int](1, time.Hour), time.Unix(0, 0)
	for i := range 5000 {
		r.Count(i, now)
	}
	for i := range 5000 {
		if got := r.Wait(i, now); got != time.Hour {
			t.Fatalf("key %d waits %s, want an hour", i, got)
		}
	}
}

func TestRatesForgetKeysNotInUse(t *testing.T) {
	r, now := NewRates[int](3, time.Second), time.Unix(0, 0)
	for i := range 100_000 {
		r.Count(i, now)
		now = now.Add(10 * time.Millisecond)
	}
	if len(r.paid) > 2048 {
		t.Errorf("%d keys are remembered of 100 that make a difference", len(r.paid))
	}
}
