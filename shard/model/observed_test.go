package model

import "testing"

func ofObserved(f observed, mutants ...mutant) trial {
	return trial{f.name, func(m mutation, limit bounds) finding {
		f.mutation = m
		return explore(f, limit)
	}, mutants}
}

// observedTrials are the scenarios of the observed variant that are explored completely.
func observedTrials() []trial {
	return []trial{
		ofObserved(observed{
			name: "observed: restarts and take-over", replicas: []uint8{a, b}, steady: second, held: true,
			faults: harm{crashes: 1, sleeps: 1},
		}),
		ofObserved(observed{
			name: "observed: Leases are removed by force", replicas: []uint8{a, b}, steady: second, held: true, once: true,
			faults: harm{forced: 2},
		},
			mutant{blindHolderActs, twoOwners, "a1 receives the answer to its renewal"},
			mutant{slotWatchedApart, twoOwners, "a1 observes"},
			mutant{newSlotAtOnce, twoOwners, "b1 sends: acquire the slot"},
			mutant{missingIsDead, twoOwners, "b1 sends: acquire the slot"}),
		ofObserved(observed{
			name: "observed: clocks", replicas: []uint8{a, b}, steady: second, held: true, once: true,
			faults: harm{drifts: 2, forced: 1},
		}),
		ofObserved(observed{
			name: "observed: in flight", replicas: []uint8{a, b}, steady: second, held: true, once: true, inFlight: true,
			faults: harm{forced: 1, crashes: 1},
		}, mutant{exitsLate, inFlightThere, "a1 begins something for the slot"}),
		ofObserved(observed{
			name: "observed: etcd is restored", replicas: []uint8{a, b}, steady: second, held: true,
			faults: harm{restores: 1, leaves: 1},
		}, mutant{restoredTooEarly, twoOwners, "etcd is restored from the snapshot"}),
		ofObserved(observed{
			name: "observed: a slot Lease with a finalizer", replicas: []uint8{a, b}, steady: first | second, once: true, finalizers: true,
			faults: harm{slotDeletions: 1, forced: 1},
		}, mutant{cleanSlotAtOnce, twoOwners, "the slot Lease is created by a1"}),
	}
}

// observedLarge are those that take minutes.
func observedLarge() []trial {
	finalizers := observed{
		name: "observed: finalizers, removed by force", replicas: []uint8{a, b}, steady: second, held: true, once: true, finalizers: true,
		faults: harm{slotDeletions: 1, forced: 1},
	}
	restored := finalizers
	restored.name, restored.faults = "observed: finalizers, and etcd is restored", harm{slotDeletions: 1, restores: 1}
	deleted := finalizers
	deleted.name, deleted.faults = "observed: finalizers", harm{sessionDeletions: 1, slotDeletions: 1}
	return []trial{
		ofObserved(deleted),
		ofObserved(finalizers),
		ofObserved(restored),
		withoutRule(restored, restoredNameCounts),
		ofObserved(observed{
			name: "observed: two sessions of one replica", replicas: []uint8{a, a, b}, steady: third, passive: first | second, held: true,
			once: true, faults: harm{forced: 1, twins: 1},
		}, mutant{otherUIDIsDead, twoOwners, "b1 sends: acquire the slot"}),
		ofObserved(observed{
			name: "observed: a session Lease is created late", replicas: []uint8{a, b}, steady: second, once: true,
			faults: harm{forced: 1, repetitions: 1},
		}),
		ofObserved(observed{
			name: "observed: three replicas", replicas: []uint8{a, b, c}, steady: second | third, held: true, once: true,
			faults: harm{crashes: 1, sleeps: 1, forced: 1},
		}),
		ofObserved(observed{
			name: "observed: three replicas, etcd is restored", replicas: []uint8{a, b, c}, steady: second | third, held: true,
			once: true, faults: harm{restores: 1},
		}),
	}
}

// withoutRule leaves out a rule that nothing in the observed variant depends on.
func withoutRule(f observed, remaining mutation) trial {
	return trial{f.name + ", and " + string(remaining), func(_ mutation, limit bounds) finding {
		f.mutation = remaining
		return explore(f, limit)
	}, nil}
}

// TestAFinalizerPreventsNothing explores a slot Lease that a user deletes: with a finalizer that its holder removes when it is
// idle, with one that is removed at once, and without one. None of them breaks a promise, because every new slot Lease waits; the
// slot is without a holder for longest with the first.
func TestAFinalizerPreventsNothing(t *testing.T) {
	f := observed{
		name: "the slot Lease is deleted", replicas: []uint8{a, b}, steady: second, held: true, once: true, finalizers: true, inFlight: true,
		faults: harm{slotDeletions: 1},
	}
	with := explore(f, bounds{})
	f.mutation = finalizedWhileHeld
	without := explore(f, bounds{})
	f.finalizers = false
	none := explore(f, bounds{})
	t.Logf("finished by the holder: %v; removed at once: %v; no finalizer: %v", with, without, none)
	for _, got := range []finding{with, without, none} {
		if got.broken != "" || !got.complete {
			t.Errorf("want no promise broken, got %v", got)
		}
	}
	if with.ticks <= none.ticks {
		t.Errorf("want the slot to be held again sooner without a finalizer: %d ticks with it, %d without", with.ticks, none.ticks)
	}
}
