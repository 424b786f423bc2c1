package model

import "slices"

// unsure marks the states from which a good state is not necessarily reached without faults: there
// is an endless path around the good states, or a final state. (It removes, backwards from the good
// states, the states that surely lead there; the rest is unsure.) It also returns the largest
// number of ticks that pass before a good state is reached.
func (e *explorer[S]) unsure() (unsure []bool, most int) {
	begin, predecessors := e.backwards()
	open := make([]uint32, e.states.n) // steps without faults that do not surely lead to a good state
	unsure = make([]bool, e.states.n)
	ticks := make([]uint8, e.states.n)
	var sure []uint32
	for i := range uint32(e.states.n) {
		open[i] = e.from[i+1] - e.from[i]
		if unsure[i] = !e.system.good(*e.states.at(i)); !unsure[i] {
			sure = append(sure, i)
		}
	}
	for len(sure) > 0 {
		last := sure[len(sure)-1]
		sure = sure[:len(sure)-1]
		most = max(most, int(ticks[last]))
		for _, p := range predecessors[begin[last]:begin[last+1]] {
			if unsure[p] {
				ticks[p] = max(ticks[p], ticks[last]+e.tick(p))
			}
			if open[p]--; open[p] == 0 && unsure[p] {
				unsure[p] = false
				sure = append(sure, p)
			}
		}
	}
	return unsure, most
}

// tick is the time that the steps without faults of a state take.
func (e *explorer[S]) tick(i uint32) uint8 {
	if e.waits[i] {
		return 1
	}
	return 0
}

// backwards reverses the steps without faults: the predecessors of state i are
// predecessors[begin[i]:begin[i+1]].
func (e *explorer[S]) backwards() (begin, predecessors []uint32) {
	begin = make([]uint32, e.states.n+1)
	for _, to := range e.faultless {
		begin[to]++
	}
	for i := 1; i < len(begin); i++ {
		begin[i] += begin[i-1]
	}
	predecessors = make([]uint32, len(e.faultless))
	for i := range e.states.n {
		for _, to := range e.faultless[e.from[i]:e.from[i+1]] {
			begin[to]--
			predecessors[begin[to]] = uint32(i)
		}
	}
	return begin, predecessors
}

// story returns the shortest path to a state, and a description of that state.
func (e *explorer[S]) story(i uint32) []string {
	lines := []string{"  " + e.system.describe(*e.states.at(i))}
	for ; i != 0; i = e.parent[i] {
		lines = append(lines, "  "+e.between(e.parent[i], i))
	}
	slices.Reverse(lines)
	return lines
}

// between returns the label of the step from one state to another.
func (e *explorer[S]) between(i, j uint32) string {
	for _, s := range e.system.next(*e.states.at(i), nil) {
		if s.to == *e.states.at(j) {
			return s.name.String()
		}
	}
	return "(no step)"
}

// endless returns the path to an unsure state, and one on which no good state is ever reached.
func (e *explorer[S]) endless(i uint32, unsure []bool) []string {
	lines := append(e.story(i), "  from now on no more faults occur:")
	for seen := map[uint32]bool{}; !seen[i]; {
		seen[i] = true
		ways := e.faultless[e.from[i]:e.from[i+1]]
		way := slices.IndexFunc(ways, func(j uint32) bool { return unsure[j] })
		if way < 0 {
			return append(lines, "  no more steps are possible")
		}
		lines = append(lines, "  "+e.between(i, ways[way]))
		i = ways[way]
	}
	return append(lines, "  and so on without end: "+e.system.describe(*e.states.at(i)))
}
