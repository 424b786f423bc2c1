package model

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// kind classifies a step for a world in which no more faults occur, for which progress is promised.
type kind uint8

const (
	due     kind = iota // happens before time passes
	may                 // can happen at any time, and no other step waits for it
	fault               // is a fault
	passing             // time passes
)

// label describes a step for the story: a format and up to two names.
type label struct{ format, first, second string }

func (l label) String() string {
	arguments := []any{l.first, l.second}
	return fmt.Sprintf(l.format, arguments[:strings.Count(l.format, "%s")]...)
}

// step leads from one state to another.
type step[S comparable] struct {
	kind kind
	name label
	to   S
}

// system can be explored. A state is a small value; two states that cannot be distinguished
// by any future should be equal.
type system[S comparable] interface {
	start() S
	// next appends every step that is possible in a state.
	next(s S, steps []step[S]) []step[S]
	// broken names the promise that a state breaks, or is "".
	broken(s S) string
	// good reports whether a state is one of those that must always be reached again when no more
	// faults occur.
	good(s S) bool
	// describe returns a description of a state for the story.
	describe(s S) string
}

// bounds end an exploration early. Zero is no bound.
type bounds struct {
	states int
	spent  func() bool // reports whether the time is up; called every now and then
}

// finding is the result of an exploration.
type finding struct {
	states   int
	depth    int      // of the deepest state, in steps
	complete bool     // nothing reachable is left
	ticks    int      // the most that pass before a good state when no more faults occur
	broken   string   // the promise that was broken, or ""
	story    []string // the shortest way there
}

func (f finding) String() string {
	extent := "all"
	if !f.complete {
		extent = "the first"
	}
	text := fmt.Sprintf("%s %d states, %d steps deep", extent, f.states, f.depth)
	if f.broken == "" && f.complete {
		return fmt.Sprintf("%s, a good one within %d ticks", text, f.ticks)
	}
	if f.broken == "" {
		return text
	}
	return fmt.Sprintf("%s: %s, after %d steps:\n%s", text, f.broken, len(f.story)-1, strings.Join(f.story, "\n"))
}

// explorer visits states breadth first, so that the first way to a state is a shortest one.
type explorer[S comparable] struct {
	system system[S]
	states chunks[S]
	parent []uint32
	index  []uint32 // open addressing; an entry is 1 + the number of a state
	seed   maphash.Seed
	// The steps that happen without faults: those of state i are faultless[from[i]:from[i+1]].
	faultless, from []uint32
	waits           []bool // the steps without faults of a state let time pass
	steps           []step[S]
}

// explore examines everything that can be reached. It stops at the first state that breaks a
// promise. When everything is explored, it looks for a state from which a good one is not
// necessarily reached again.
func explore[S comparable](sys system[S], limit bounds) finding {
	e := &explorer[S]{system: sys, seed: maphash.MakeSeed(), index: make([]uint32, 1<<16)}
	e.visit(sys.start(), 0)
	depth, last := 0, uint32(0) // the last state that is depth steps deep
	for i := 0; i < e.states.n; i++ {
		if uint32(i) > last {
			depth, last = depth+1, uint32(e.states.n-1)
		}
		if promise := sys.broken(*e.states.at(uint32(i))); promise != "" {
			return finding{states: e.states.n, depth: depth, broken: promise, story: e.story(uint32(i))}
		}
		if limit.states > 0 && e.states.n > limit.states || limit.spent != nil && i%4096 == 0 && limit.spent() {
			return finding{states: e.states.n, depth: depth}
		}
		e.expand(uint32(i))
	}
	e.from = append(e.from, uint32(len(e.faultless)))
	f := finding{states: e.states.n, depth: depth, complete: true}
	unsure, ticks := e.unsure()
	f.ticks = ticks
	if first := slices.Index(unsure, true); first >= 0 {
		f.broken = "no progress although no more faults occur"
		f.story = e.endless(uint32(first), unsure)
	}
	return f
}

// expand visits all successors of a state.
func (e *explorer[S]) expand(i uint32) {
	e.from = append(e.from, uint32(len(e.faultless)))
	e.steps = e.system.next(*e.states.at(i), e.steps[:0])
	when := faultlessKind(e.steps)
	e.waits = append(e.waits, when == passing)
	for _, s := range e.steps {
		j := e.visit(s.to, i)
		if s.kind == when {
			e.faultless = append(e.faultless, j)
		}
	}
}

// faultlessKind returns the kind of the steps that happen without faults: those that are due, and
// the passing of time if none is.
func faultlessKind[S comparable](steps []step[S]) kind {
	if slices.ContainsFunc(steps, func(s step[S]) bool { return s.kind == due }) {
		return due
	}
	return passing
}

// visit returns the number of a state.
func (e *explorer[S]) visit(s S, parent uint32) uint32 {
	if 2*e.states.n >= len(e.index) {
		e.grow()
	}
	place := e.place(s)
	if e.index[place] == 0 {
		e.states.add(s)
		e.parent = append(e.parent, parent)
		e.index[place] = uint32(e.states.n)
	}
	return e.index[place] - 1
}

// place returns where a state is in the index, or where it belongs.
func (e *explorer[S]) place(s S) uint64 {
	mask := uint64(len(e.index) - 1)
	at := maphash.Comparable(e.seed, s) & mask
	for e.index[at] != 0 && *e.states.at(e.index[at] - 1) != s {
		at = (at + 1) & mask
	}
	return at
}

func (e *explorer[S]) grow() {
	e.index = make([]uint32, 2*len(e.index))
	for i := range uint32(e.states.n) {
		e.index[e.place(*e.states.at(i))] = i + 1
	}
}

// chunks is a list that grows without being copied.
type chunks[S any] struct {
	full [][]S
	n    int
}

const chunk = 1 << 14

func (c *chunks[S]) add(s S) {
	if c.n%chunk == 0 {
		c.full = append(c.full, make([]S, chunk))
	}
	c.full[c.n/chunk][c.n%chunk] = s
	c.n++
}

func (c *chunks[S]) at(i uint32) *S { return &c.full[i/chunk][i%chunk] }
