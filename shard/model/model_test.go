package model

import (
	"cmp"
	"os"
	"strconv"
	"testing"
	"time"
)

// The replicas of sessions.
const (
	a uint8 = iota
	b
	c
)

// Sets of sessions, for scenarios.
const (
	first  uint8 = 1 << 1
	second uint8 = 1 << 2
	third  uint8 = 1 << 3
)

// trial is a system, and the mutations that must be found in it.
type trial struct {
	name      string
	explore   func(mutation, bounds) finding
	mutations []mutation
}

func ofFleet(f fleet, mutations ...mutation) trial {
	return trial{f.name, func(m mutation, limit bounds) finding {
		f.mutation = m
		return explore(f, limit)
	}, mutations}
}

func trials() []trial {
	return []trial{
		ofFleet(fleet{
			name: "restarts and take-over", replicas: []uint8{a, a, b}, steady: third, faults: faults{crashes: 1, sleeps: 1},
		}, takeOverWithoutCompare, deathFromCache),
		ofFleet(fleet{
			name: "renewals", replicas: []uint8{a, b}, steady: second, held: true, once: true, attempts: 2, answers: true,
			faults: faults{sleeps: 1, lostAnswers: 1, drops: 1},
		}, fenceFromAnswer),
		ofFleet(fleet{
			name: "clocks", replicas: []uint8{a, b}, steady: second, held: true, once: true, attempts: 2,
			faults: faults{drifts: 2, sleeps: 1, crashes: 1},
		}, fenceOnMonotonicClock, takeOverEarly, readRestartsTimer),
		ofFleet(fleet{
			name: "two sessions of one replica", replicas: []uint8{a, a, b}, steady: third, passive: first | second, held: true,
			once: true, faults: faults{twins: 1, leaves: 1, leaseDeletions: 1},
		}, createdProvesDeath, markGoesWithSession),
		ofFleet(fleet{
			name: "a session Lease is deleted", replicas: []uint8{a, b}, steady: second, once: true,
			faults: faults{leaseDeletions: 1, repetitions: 1},
		}, absenceProvesDeath, absenceTimedByWatch),
		ofFleet(fleet{
			name: "the slot Lease is deleted", replicas: []uint8{a, b}, steady: second, once: true, faults: faults{slotDeletions: 1},
		}, quarantineListsFromCache, updateWithoutUID),
		ofFleet(fleet{
			name: "both Leases are deleted", replicas: []uint8{a, b}, steady: second, held: true, once: true,
			faults: faults{leaseDeletions: 1, slotDeletions: 1},
		}, quarantineTimedFromLease, quarantineDoesNotWait),
		ofFleet(fleet{
			name: "hand-over", replicas: []uint8{a, b}, steady: first | second, plan: true, faults: faults{flips: 3},
		}, releaseForgotten),
		ofFleet(fleet{
			name: "outage", replicas: []uint8{a, b}, held: true, prompt: true, faults: faults{outages: 2},
		}, noComeBack, failureIsNoGap),
		ofFleet(fleet{
			name: "hand-over when the holder may die", replicas: []uint8{a, b}, steady: second, held: true, plan: true,
			faults: faults{flips: 2, crashes: 1},
		}),
		ofFleet(fleet{name: "two that watch each other", replicas: []uint8{a, b}, held: true}),
		{"children", func(m mutation, limit bounds) finding {
			return explore(children{changes: 3, losses: 2, mutation: m}, limit)
		}, []mutation{childWithoutIntent, absenceFromCache, parentUnconditional}},
		{"a Machine and its VM", func(m mutation, limit bounds) finding {
			return explore(cloud{changes: 3, mutation: m}, limit)
		}, []mutation{firstListStale}},
	}
}

func TestTheProtocolKeepsItsPromises(t *testing.T) {
	for _, trial := range trials() {
		t.Run(trial.name, func(t *testing.T) {
			begin := time.Now()
			got := trial.explore(none, bounds{})
			t.Logf("%v in %v", got, time.Since(begin).Round(time.Millisecond))
			if got.broken != "" || !got.complete {
				t.Error("want everything explored, and no promise broken")
			}
		})
	}
}

func TestTheCheckerFindsWhatARuleIsFor(t *testing.T) {
	for _, trial := range trials() {
		for _, m := range trial.mutations {
			t.Run(string(m), func(t *testing.T) {
				got := trial.explore(m, bounds{})
				t.Log(got)
				if got.broken == "" {
					t.Errorf("want a broken promise in %q", trial.name)
				}
			})
		}
	}
}

// TestThreeReplicas goes as deep as time and memory allow each of its scenarios, and a little way always.
func TestThreeReplicas(t *testing.T) {
	limit, begin := bounds{states: 50_000}, func() {}
	if text := os.Getenv("MODEL_TIME"); text != "" {
		budget, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("MODEL_TIME: want a duration such as 30m, got %q: %v", text, err)
		}
		if limit.states, err = strconv.Atoi(cmp.Or(os.Getenv("MODEL_STATES"), "6000000")); err != nil {
			t.Fatalf("MODEL_STATES: want a number of states: %v", err)
		}
		var end time.Time
		limit.spent = func() bool { return time.Now().After(end) }
		begin = func() { end = time.Now().Add(budget) }
	}
	for _, f := range []fleet{
		{name: "take-over", replicas: []uint8{a, b, c}, held: true, faults: faults{crashes: 1, sleeps: 1, drifts: 1, leaves: 1}},
		{name: "deletions", replicas: []uint8{a, b, c}, held: true, faults: faults{leaseDeletions: 1, slotDeletions: 1, drops: 1}},
		{name: "outage", replicas: []uint8{a, b, c}, held: true, prompt: true, faults: faults{outages: 2, crashes: 1}},
		{name: "twins", replicas: []uint8{a, a, b, c}, held: true, attempts: 2, faults: faults{twins: 1, leaseDeletions: 1, sleeps: 1}},
	} {
		t.Run(f.name, func(t *testing.T) {
			begin()
			got := explore(f, limit)
			t.Log(got)
			if got.broken != "" {
				t.Error("want no promise broken")
			}
		})
	}
}
