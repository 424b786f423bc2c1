package machinefacts

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLosses(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	row := func(count int, until time.Duration) *Losses {
		return &Losses{Count: count, From: 5, Until: metav1.Time{Time: now.Add(until)}, Generation: 7}
	}
	for _, c := range []struct {
		name   string
		before *Losses
		failed int64
		count  int
		wait   time.Duration
	}{
		{"the first", nil, 0, 1, 0},
		{"of its replacement", row(1, 0), 5, 2, 10 * time.Second},
		{"again", row(2, -time.Minute), 5, 3, 20 * time.Second},
		{"many times", row(6, 0), 5, 7, 320 * time.Second},
		{"more often", row(7, 0), 5, 8, 6 * time.Minute},
		{"a count that a client wrote", row(1<<30, 0), 5, 1<<30 + 1, 6 * time.Minute},
		{"a count that no replica writes", row(-1, 0), 5, 1, 0},
		{"of a machine from before", row(2, 3*time.Second), 4, 2, 3 * time.Second},
		{"of a machine that lived", row(3, -EarlyFailure), 5, 1, 0},
		{"of one that nearly lived", row(3, time.Second-EarlyFailure), 5, 4, 40 * time.Second},
		{"by a replica whose clock is ahead", row(3, longestDelay+EarlyFailure-time.Second), 5, 4, 40 * time.Second},
		{"a time that no replica writes", row(3, longestDelay+EarlyFailure), 5, 1, 0},
		{"of another generation", &Losses{Count: 3, From: 5, Until: metav1.Time{Time: now}, Generation: 6}, 5, 1, 0},
	} {
		got := c.before.Then(c.failed, 9, 7, now)
		if wait := got.Wait(7, now); got.Count != c.count || wait != c.wait {
			t.Errorf("%s: %d in a row, wait %s, want %d and %s", c.name, got.Count, wait, c.count, c.wait)
		}
		if c.failed >= 5 && got.From != 9 {
			t.Errorf("%s: machines from %d count, want 9", c.name, got.From)
		}
	}
	if wait := row(3, time.Minute).Wait(8, now); wait != 0 {
		t.Errorf("after a change of the spec: wait %s, want none", wait)
	}
}
