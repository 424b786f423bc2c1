package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	utilclock "k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// lists are the lists of objects that the processes of a world request: those from which slots
// open, those of work, and one, after slots were opened, of objects that serving does not need.
type lists struct {
	w *world
	// takes is how long an answer takes, and errors the share of requests that fail.
	takes  time.Duration
	errors float64
	health map[*process]*apianswers.ListHealth
	broken map[*process]map[string]string
	sweeps map[*process]bool
	// last is the replica that has last acquired each slot, and moves counts how often it was another
	// one than before.
	last  map[int]string
	moves int
}

// trueTime is the world's time as a clock.
type trueTime struct {
	utilclock.PassiveClock

	w *world
}

func (t trueTime) Now() time.Time                   { return time.Unix(0, 0).Add(t.w.now) }
func (t trueTime) Since(at time.Time) time.Duration { return t.Now().Sub(at) }

// begin makes a new process list, and report the health of its lists.
func (l *lists) begin(p *process) {
	l.health[p] = apianswers.NewListHealth(trueTime{w: l.w}, "machines")
	p.soon(l.w.between(0, 20*time.Second), func() { l.work(p) })
	p.soon(time.Second, func() { l.report(p) })
}

// report reports a changed health, as the product does once a second.
func (l *lists) report(p *process) {
	var broken map[string]string
	if resource, is := l.health[p].Broken(l.w.config.BlindAfter); is {
		broken = map[string]string{protocol.DefaultTarget: "lists of " + resource}
	}
	if !maps.Equal(broken, l.broken[p]) {
		l.broken[p] = broken
		p.post(protocol.Watched{Broken: broken})
	}
	p.soon(time.Second, func() { l.report(p) })
}

// request requests a list, and calls answered with its outcome.
func (l *lists) request(p *process, resource string, errors float64, answered func(ok bool)) {
	done := l.health[p].Begin(resource)
	p.soon(time.Duration((0.8+0.4*l.w.random.Float64())*float64(l.takes)), func() {
		ok := l.w.random.Float64() >= errors
		done(ok, true)
		answered(ok)
	})
}

// work lists the machines of a slot that is open, again and again.
func (l *lists) work(p *process) {
	again := func(bool) { p.soon(l.w.between(5*time.Second, time.Minute), func() { l.work(p) }) }
	for slot := range p.work {
		if p.work[slot].open && p.owns(slot) {
			l.request(p, "machines", l.errors, again)
			return
		}
	}
	again(true)
}

// open lists the objects of a slot until that succeeds.
func (l *lists) open(p *process, slot int, opened func()) {
	if l.last[slot] != "" && l.last[slot] != p.pod.name {
		l.moves++
	}
	l.last[slot] = p.pod.name
	l.tryToOpen(p, opened)
}

func (l *lists) tryToOpen(p *process, opened func()) {
	p.soon(time.Duration((0.8+0.4*l.w.random.Float64())*float64(l.takes)), func() {
		if l.w.random.Float64() < l.errors {
			p.soon(l.w.between(time.Second, 5*time.Second), func() { l.tryToOpen(p, opened) })
			return
		}
		opened()
		if !l.sweeps[p] {
			l.sweeps[p] = true
			l.sweep(p)
		}
	})
}

// sweep lists objects that serving does not need, one of which the API server cannot decode.
func (l *lists) sweep(p *process) {
	l.request(p, "secrets", 1, func(bool) { p.soon(time.Minute, func() { l.sweep(p) }) })
}

// TestMovesEndWhereListsAreSlowOrFail checks that fitness, which lists decide, and the lists, which
// moves cause, come to rest, also after a restart: with lists of any duration slots open and stay
// where they are. Where a share of all lists fails, replicas become unfit again and again; then
// moves become rare.
func TestMovesEndWhereListsAreSlowOrFail(t *testing.T) {
	t.Parallel()
	durations, shares := []int{1, 14, 20, 45, 120}, []float64{0, 0.1, 0.5, 0.9, 1}
	if testing.Short() {
		durations, shares = []int{1, 20, 120}, []float64{0, 0.5, 1}
	}
	for _, seconds := range durations {
		for _, errors := range shares {
			t.Run(fmt.Sprintf("%d s, %v fail", seconds, errors), func(t *testing.T) {
				w := worldOfLists(uint64(seconds), time.Duration(seconds)*time.Second, errors)
				moves := func(d time.Duration) int {
					before := w.lists.moves
					w.run(w.now+d, func() bool { return false })
					return w.lists.moves - before
				}
				moves(20 * time.Minute)
				w.anyProcess().die()
				soon, later := moves(30*time.Minute), moves(30*time.Minute)
				// One for each replica that is tried again, and one back; some for each slot where replicas
				// become unfit again and again.
				most := 2 * len(w.pods)
				if errors > 0 && errors < 1 {
					most = 6 * w.slots
				}
				if later > most {
					t.Errorf("want at most %d moves in half an hour, got %d, after %d in the one before", most, later, soon)
				}
				isOpen := func() bool { return w.checker.atRest() == "" }
				if w.run(w.now+30*time.Minute, isOpen); errors < 0.9 && !isOpen() {
					t.Errorf("want all slots open, got: %s", w.checker.atRest())
				}
				if w.checker.violation != "" {
					t.Error(w.checker.violation)
				}
			})
		}
	}
}

// worldOfLists returns a world of three replicas without faults other than those of its lists.
func worldOfLists(seed uint64, takes time.Duration, errors float64) *world {
	w := &world{
		seed: seed, random: rand.New(rand.NewPCG(seed, 1)), config: member.DefaultConfig(), plan: assignment.DefaultConfig(),
		pods: map[string]*pod{}, slots: 16,
	}
	w.api, w.checker = newServer(w), newChecker(w)
	w.faults = newFaults(w)
	w.lists = &lists{
		w: w, takes: takes, errors: errors, health: map[*process]*apianswers.ListHealth{}, broken: map[*process]map[string]string{},
		sweeps: map[*process]bool{}, last: map[int]string{},
	}
	for range 3 {
		w.after(w.between(0, 5*time.Second), w.join)
	}
	w.after(time.Second, w.elect)
	return w
}
