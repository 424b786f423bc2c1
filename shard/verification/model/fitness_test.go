package model

// The promises about replicas that live and cannot work, as a finding names them.
const (
	emptiedLeader   = "a leader Lease was emptied by another session than its holder"
	moveFromServing = "a slot that was served was moved to a replica that does not act"
	crowdedProbe    = "a replica that was not seen to serve was given a second slot"
)

func ofFitness(f fitness, mutants ...mutant) trial {
	return trial{f.name, func(m mutation, limit bounds) finding {
		f.mutation = m
		return explore(f, limit)
	}, mutants}
}

// fitnessTrials are the scenarios of replicas that live and cannot work.
func fitnessTrials() []trial {
	return []trial{
		ofFitness(fitness{
			name: "slots do not open", replicas: 2, slots: 1, faults: troubles{cuts: 2, recoveries: 1},
		},
			mutant{keepsUnopened, noProgress, "time passes"},
			mutant{openedOnceIsServed, noProgress, "time passes"},
			mutant{forgetsFailure, noProgress, "A acquires a slot"},
			mutant{assignsToAllLiving, noProgress, "A acquires a slot"}),
		ofFitness(fitness{
			name: "lists and watches fail", replicas: 2, slots: 1, inFlight: true, faults: troubles{blinds: 1, sleeps: 1},
		},
			mutant{blindKeeps, noProgress, "a slot is assigned to B"},
			mutant{silentUnfitness, noProgress, "time passes"},
			mutant{blindLeaderLeads, noProgress, "A renews the leader Lease"},
			mutant{blindCandidate, noProgress, "A leads"},
			mutant{emptiesOthers, emptiedLeader, "A leads no longer"},
			mutant{acquiresFromUnfit, twoOwners, "B acquires a slot"}),
		ofFitness(fitness{
			name: "a process cannot list", replicas: 2, slots: 2, faults: troubles{stucks: 1, crashes: 1, blinds: 1},
		},
			mutant{staysStuck, noProgress, "time passes"},
			mutant{assignsBeforeActing, moveFromServing, "a slot is assigned to B"},
			mutant{noProbe, crowdedProbe, "a slot is assigned to B"}),
		ofFitness(fitness{
			name: "slots do not open at two of three replicas", replicas: 3, slots: 2, faults: troubles{cuts: 2},
		}, mutant{backOffStaysShort, noProgress, "a slot is assigned to C"}),
		ofFitness(fitness{
			name: "slots do not open after a restart", replicas: 2, slots: 2, faults: troubles{cuts: 1, crashes: 1},
		}),
	}
}

// fitnessLarge are those that take minutes.
func fitnessLarge() []trial {
	return []trial{
		ofFitness(fitness{
			name: "three replicas that cannot work", replicas: 3, slots: 2, faults: troubles{stucks: 1, crashes: 1, blinds: 1, cuts: 1},
		}),
		ofFitness(fitness{
			name: "lists and watches fail, and everything is late", replicas: 2, slots: 1, late: true, inFlight: true,
			faults: troubles{blinds: 1},
		}),
	}
}
