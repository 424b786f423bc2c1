package model

import "slices"

// unsure marks the states from which, with nothing going wrong, a good state need not come: there is an endless way
// around them, or an end. (It takes away, backwards from the good states, what surely leads there; the rest is unsure.)
// It returns, too, the most ticks that pass before a good state comes.
func (e *explorer[S]) unsure() (unsure []bool, most int) {
	begin, predecessors := e.backwards()
	open := make([]uint32, e.states.n) // calm steps that do not surely lead to a good state
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

// tick is the time that the calm steps of a state take.
func (e *explorer[S]) tick(i uint32) uint8 {
	if e.waits[i] {
		return 1
	}
	return 0
}

// backwards turns the calm steps round: the predecessors of state i are predecessors[begin[i]:begin[i+1]].
func (e *explorer[S]) backwards() (begin, predecessors []uint32) {
	begin = make([]uint32, e.states.n+1)
	for _, to := range e.calm {
		begin[to]++
	}
	for i := 1; i < len(begin); i++ {
		begin[i] += begin[i-1]
	}
	predecessors = make([]uint32, len(e.calm))
	for i := range e.states.n {
		for _, to := range e.calm[e.from[i]:e.from[i+1]] {
			begin[to]--
			predecessors[begin[to]] = uint32(i)
		}
	}
	return begin, predecessors
}

// story tells the shortest way to a state, and how the state looks.
func (e *explorer[S]) story(i uint32) []string {
	lines := []string{"  " + e.system.describe(*e.states.at(i))}
	for ; i != 0; i = e.parent[i] {
		lines = append(lines, "  "+e.between(e.parent[i], i))
	}
	slices.Reverse(lines)
	return lines
}

// between names the step from one state to another.
func (e *explorer[S]) between(i, j uint32) string {
	for _, s := range e.system.next(*e.states.at(i), nil) {
		if s.to == *e.states.at(j) {
			return s.name.String()
		}
	}
	return "(no step)"
}

// endless tells the way to an unsure state, and one on which no good state ever comes.
func (e *explorer[S]) endless(i uint32, unsure []bool) []string {
	lines := append(e.story(i), "  and now nothing goes wrong any more:")
	for seen := map[uint32]bool{}; !seen[i]; {
		seen[i] = true
		ways := e.calm[e.from[i]:e.from[i+1]]
		way := slices.IndexFunc(ways, func(j uint32) bool { return unsure[j] })
		if way < 0 {
			return append(lines, "  and nothing more can happen")
		}
		lines = append(lines, "  "+e.between(i, ways[way]))
		i = ways[way]
	}
	return append(lines, "  and so on, for ever: "+e.system.describe(*e.states.at(i)))
}
