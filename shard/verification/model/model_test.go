package model

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
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

// The promises, as a finding names them.
const (
	twoOwners    = "are entitled at once"
	killedByAway = "a living session was declared dead because the API server was unavailable"
	noProgress   = "no progress although no more faults occur"
	twoChildren  = "2 children where one is wanted"
	lateVM       = "an owner creates a VM for a Machine that is gone"
)

// trial is a system, and the mutations that must be found in it.
type trial struct {
	name    string
	explore func(mutation, bounds) finding
	mutants []mutant
}

// mutant is a mutation, the promise that it breaks, and a step on the way there: the one that is
// harmful without the rule.
type mutant struct {
	mutation mutation
	breaks   string
	by       string
}

func ofFleet(f fleet, mutants ...mutant) trial {
	return trial{f.name, func(m mutation, limit bounds) finding {
		f.mutation = m
		return explore(f, limit)
	}, mutants}
}

func trials() []trial {
	return slices.Concat(fleetTrials(), fitnessTrials())
}

func fleetTrials() []trial {
	return []trial{
		ofFleet(fleet{
			name: "restarts and take-over", replicas: []uint8{a, a, b}, steady: third, faults: faults{crashes: 1, sleeps: 1},
		},
			mutant{takeOverWithoutCompare, twoOwners, "a session Lease is emptied by b1"},
			mutant{deathFromCache, twoOwners, "b1 reads the session Lease that a1 had"}),
		ofFleet(fleet{
			name: "renewals", replicas: []uint8{a, b}, steady: second, held: true, once: true, attempts: 2, answers: true,
			faults: faults{sleeps: 1, lostAnswers: 1, drops: 1},
		}, mutant{fenceFromAnswer, twoOwners, "a1 receives the answer to its renewal"}),
		ofFleet(fleet{
			name: "clocks", replicas: []uint8{a, b}, steady: second, held: true, once: true, attempts: 2,
			faults: faults{drifts: 2, sleeps: 1, crashes: 1},
		},
			mutant{fenceOnMonotonicClock, twoOwners, "a1 wakes up"},
			mutant{takeOverEarly, twoOwners, "b1 sends: the session of A is dead"},
			mutant{readRestartsTimer, noProgress, "b1 reads the session Lease that a1 had"}),
		ofFleet(fleet{
			name: "two sessions of one replica", replicas: []uint8{a, a, b}, steady: third, passive: first | second, held: true,
			once: true, faults: faults{twins: 1, leaves: 1, leaseDeletions: 1},
		},
			mutant{createdProvesDeath, twoOwners, "the session Lease of a2 is created"},
			mutant{annotationGoesWithSession, twoOwners, "a session Lease is emptied by a2"}),
		ofFleet(fleet{
			name: "a session Lease is deleted", replicas: []uint8{a, b}, steady: second, once: true,
			faults: faults{leaseDeletions: 1, repetitions: 1},
		},
			mutant{absenceProvesDeath, twoOwners, "b1 reads the session Lease that a1 had"},
			mutant{absenceTimedByWatch, twoOwners, "b1 reads the session Lease that a1 had"}),
		ofFleet(fleet{
			name: "the slot Lease is deleted", replicas: []uint8{a, b}, steady: second, once: true, faults: faults{slotDeletions: 1},
		},
			mutant{quarantineListsFromCache, twoOwners, "a1 lists the session Leases, and writes the list on the slot Lease"},
			mutant{updateWithoutUID, twoOwners, "the slot is acquired by a1"}),
		ofFleet(fleet{
			name: "both Leases are deleted", replicas: []uint8{a, b}, steady: second, held: true, once: true,
			faults: faults{leaseDeletions: 1, slotDeletions: 1},
		},
			mutant{quarantineTimedFromLease, twoOwners, "a1 lists the session Leases, and writes the list on the slot Lease"},
			mutant{quarantineDoesNotWait, twoOwners, "a1 lists the session Leases, and writes the list on the slot Lease"}),
		ofFleet(fleet{
			name: "hand-over", replicas: []uint8{a, b}, steady: first | second, plan: true, faults: faults{flips: 3},
		}, mutant{releaseForgotten, twoOwners, "a1 stops waiting for the answer"}),
		ofFleet(fleet{
			name: "outage", replicas: []uint8{a, b}, held: true, prompt: true, faults: faults{outages: 2},
		},
			mutant{noComeBack, killedByAway, "the API server is available again"},
			mutant{failureIsNoGap, killedByAway, "the API server is available again, and for B a little later"}),
		ofFleet(fleet{
			name: "hand-over when the holder may die", replicas: []uint8{a, b}, steady: second, held: true, plan: true,
			faults: faults{flips: 2, crashes: 1},
		}),
		ofFleet(fleet{name: "two sessions that watch each other", replicas: []uint8{a, b}, held: true}),
		{"children", func(m mutation, limit bounds) finding {
			return explore(children{changes: 3, losses: 2, mutation: m}, limit)
		}, []mutant{
			{childWithoutIntent, twoChildren, "A's child 1 is created"},
			{absenceFromCache, twoChildren, "B sends: record the intent for child 1"},
			{parentUnconditional, twoChildren, "A's update of the parent arrives"},
		}},
		{"a Machine and its VM", func(m mutation, limit bounds) finding {
			return explore(cloud{changes: 3, mutation: m}, limit)
		}, []mutant{{firstListStale, lateVM, "B lists, and receives an earlier state"}}},
	}
}

func TestProtocolKeepsItsPromises(t *testing.T) {
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

func TestCheckerFindsEachMissingRule(t *testing.T) {
	for _, trial := range trials() {
		for _, m := range trial.mutants {
			t.Run(string(m.mutation), func(t *testing.T) {
				got := trial.explore(m.mutation, bounds{})
				t.Log(got)
				if !strings.Contains(got.broken, m.breaks) {
					t.Errorf("want a promise broken in %q: %s", trial.name, m.breaks)
				}
				// An endless path is reported last: what is repeated is there.
				way := got.story[slices.Index(got.story, "  from now on no more faults occur:")+1:]
				if !slices.Contains(way, "  "+m.by) {
					t.Errorf("want it broken by this step: %s", m.by)
				}
			})
		}
	}
}

// TestLargeScenarios explores each of its scenarios as deep as time and memory allow, and always a
// few steps.
func TestLargeScenarios(t *testing.T) {
	limit, begin := bounds{states: 20_000}, func() {}
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
	large := fitnessLarge()
	for _, f := range []fleet{
		{name: "take-over", replicas: []uint8{a, b, c}, held: true, faults: faults{crashes: 1, sleeps: 1, drifts: 1, leaves: 1}},
		{name: "deletions", replicas: []uint8{a, b, c}, held: true, faults: faults{leaseDeletions: 1, slotDeletions: 1, drops: 1}},
		{name: "outage", replicas: []uint8{a, b, c}, held: true, prompt: true, faults: faults{outages: 2, crashes: 1}},
		{name: "twins", replicas: []uint8{a, a, b, c}, held: true, attempts: 2, faults: faults{twins: 1, leaseDeletions: 1, sleeps: 1}},
	} {
		large = append(large, ofFleet(f))
	}
	for _, trial := range large {
		t.Run(trial.name, func(t *testing.T) {
			begin()
			start := time.Now()
			got := trial.explore(none, limit)
			t.Logf("%v in %v", got, time.Since(start).Round(time.Millisecond))
			if got.broken != "" {
				t.Error("want no promise broken")
			}
		})
	}
}
