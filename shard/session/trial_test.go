package session

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

var (
	oneSeed = flag.Int("seed", -1, "run this seed of TestReplicasUnderFaults alone")
	howMany = flag.Int("seeds", 200, "how many seeds of TestReplicasUnderFaults to run")
)

const (
	trialSlots = 5
	// limit is how long a fleet may take, after the last fault, until every slot is open: see
	// shard/verification/simulation.
	limit = 4 * time.Minute
)

// TestReplicasUnderFaults runs whole replicas, and not the rules alone as
// shard/verification/simulation does: loop, mailbox, Fence, what is in flight, election, Store and
// watch, against an API server in memory, under faults that are drawn from a seed. What runs at the
// same instant has no order, so a seed that fails may have to be run more than once: go test
// ./shard/session -run TestReplicasUnderFaults -seed=17 -count=20.
func TestReplicasUnderFaults(t *testing.T) {
	first, end := 0, worlds.Some(*howMany)
	if *oneSeed >= 0 {
		first, end = *oneSeed, *oneSeed+1
	}
	total := tally{exits: map[protocol.Reason]int{}}
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for seed := first; seed < end; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					happened := newTrial(t, uint64(seed)).run()
					mu.Lock()
					defer mu.Unlock()
					total.add(happened)
				})
			})
		}
	})
	t.Logf("%+v", total)
	if end-first >= 100 && (total.sent == 0 || total.refused == 0 || total.handOvers == 0 || total.takeOvers == 0 ||
		total.suspensions == 0 || total.exits[protocol.ReasonLeft] == 0 || total.exits[protocol.ReasonLost] == 0 ||
		total.exits[protocol.ReasonInFlight] == 0) {
		t.Errorf("want seeds in which all sorts of things happen, got %+v", total)
	}
}

// tally counts what happened, so that it shows that a run was worth its time.
type tally struct {
	starts, sent, refused, handOvers, takeOvers, suspensions int
	exits                                                    map[protocol.Reason]int
}

func (t *tally) add(other tally) {
	t.starts += other.starts
	t.sent += other.sent
	t.refused += other.refused
	t.handOvers += other.handOvers
	t.takeOvers += other.takeOvers
	t.suspensions += other.suspensions
	for reason, n := range other.exits {
		t.exits[reason] += n
	}
}

// trial is a fleet under faults. Its root goroutine injects the faults and looks at everything,
// every now and then.
type trial struct {
	*testing.T

	seed    uint64
	begun   time.Time
	random  *rand.Rand // of the root goroutine
	server  *server
	weather weather
	onWire  sync.WaitGroup
	restart map[string]time.Time // replicas without a process, and when they get one

	mu    sync.Mutex
	lives []*life // in the order of their starts
	wrong string  // the first thing that was
	tally tally
}

func newTrial(t *testing.T, seed uint64) *trial {
	t.Helper()
	r := &trial{
		T: t, seed: seed, begun: time.Now(), random: rand.New(rand.NewPCG(seed, 0)), server: newServer(),
		restart: map[string]time.Time{}, tally: tally{exits: map[protocol.Reason]int{}},
	}
	r.weather = r.drawWeather()
	t.Cleanup(r.onWire.Wait) // after all processes have been killed
	return r
}

// run is one run: faults for a while, and then peace until all slots are open.
func (r *trial) run() tally {
	for i := range 1 + r.random.IntN(3) {
		r.restart[fmt.Sprint("fleet-", i)] = time.Now().Add(r.between(0, 5*time.Second))
	}
	end := time.Now().Add(r.between(40*time.Second, 200*time.Second))
	for next := time.Now().Add(r.between(0, time.Minute)); time.Now().Before(end); {
		if !r.step() {
			return r.tally
		}
		if time.Now().After(next) {
			r.someFault()
			next = time.Now().Add(r.between(500*time.Millisecond, 30*time.Second))
		}
	}
	r.heal()
	deadline, atRest := time.Now().Add(limit), time.Now()
	for time.Since(atRest) < 2*time.Second {
		if !r.step() {
			return r.tally
		}
		if missing := r.missing(); missing != "" {
			atRest = time.Now()
			if atRest.After(deadline) {
				r.fail("%s after the last fault: %s", limit, missing)
			}
		}
	}
	for _, l := range r.lives {
		r.tally.handOvers += int(l.counted(r.T, "mcf_hand_over_seconds"))
		r.tally.takeOvers += int(l.counted(r.T, "mcf_take_over_seconds"))
		r.tally.suspensions += int(testutil.ToFloat64(l.metrics.suspensions))
	}
	return r.tally
}

// step lets some time go by, and looks at everything when nothing moves. It returns false when
// something is wrong.
func (r *trial) step() bool {
	time.Sleep(r.between(time.Millisecond, 200*time.Millisecond))
	synctest.Wait()
	for _, l := range r.lives {
		for len(l.reported) > 0 {
			<-l.reported
		}
		if !l.alive() && !l.judged {
			r.judge(l)
		}
	}
	for slot := range trialSlots {
		var owners []string
		for _, l := range r.lives {
			if l.owns(slot) {
				owners = append(owners, l.session)
			}
		}
		if len(owners) > 1 {
			r.fail("slot %d is owned by %v", slot, owners)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.restart)) {
		if time.Now().After(r.restart[name]) {
			delete(r.restart, name)
			r.start(name)
		}
	}
	return r.wrong == ""
}

// judge looks at how a process has ended, and arranges the next one.
func (r *trial) judge(l *life) {
	l.judged = true
	exit, ended := errors.AsType[*ExitError](l.err)
	switch {
	case l.killed:
	case l.err == nil:
		r.tally.exits[protocol.ReasonLeft]++
		if !l.leaving {
			r.fail("%s has left, and was not asked to", l.session)
		}
		for slot := range trialSlots {
			name := member.SlotLeaseName("fleet", slot, trialSlots)
			if l.emptied.Load() && member.Holder(r.server.Leases()[name]) == l.session {
				r.fail("%s has left, and holds slot %d", l.session, slot)
			}
		}
	case !ended || exit.Reason != protocol.ReasonLost && exit.Reason != protocol.ReasonInFlight:
		r.fail("%s has ended: %v", l.session, l.err)
	default:
		r.tally.exits[exit.Reason]++
		if exit.Reason == protocol.ReasonInFlight && !l.couldNotStop() {
			r.fail("%s has ended because of what is in flight, and nothing is: %v", l.session, l.err)
		}
	}
	if !slices.ContainsFunc(r.lives, func(other *life) bool { return other.alive() && other.replica == l.replica }) {
		r.restart[l.replica] = time.Now().Add(r.between(100*time.Millisecond, 2*time.Second))
	}
}

// missing returns what a fleet at rest lacks: each slot open once, and no process suspended.
func (r *trial) missing() string {
	for slot := range trialSlots {
		var open []string
		for _, l := range r.lives {
			if l.owns(slot) && l.fence.Holds(slot) {
				open = append(open, l.session)
			}
		}
		if len(open) != 1 {
			return fmt.Sprintf("slot %d is open at %v", slot, open)
		}
	}
	for _, l := range r.lives {
		if l.alive() && l.fence.Until().IsZero() {
			return l.session + " is suspended"
		}
	}
	return ""
}

// admitted: nothing of the slot is in flight elsewhere, unless its owner was dead, which shows in
// its fence.
func (r *trial) admitted(l *life, slot int) {
	for _, other := range r.others(l) {
		if other.alive() && other.inFlight[slot].Load() > 0 && other.fence.Acts() && l.alive() {
			r.fail("slot %d: %s begins something while something of %s is in flight", slot, l.session, other.session)
		}
	}
}

// others are all other processes that there ever were.
func (r *trial) others(l *life) []*life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.lives), func(other *life) bool { return other == l })
}

// count counts what was sent, and what the Fence refused.
func (r *trial) count(sent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent {
		r.tally.sent++
	} else {
		r.tally.refused++
	}
}

func (r *trial) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong == "" {
		r.wrong = fmt.Sprintf(format, args...)
		r.Errorf("seed %d: after %s: %s", r.seed, time.Since(r.begun), r.wrong)
	}
}

// between draws a duration, short ones more often than long ones.
func (r *trial) between(least, most time.Duration) time.Duration {
	return between(r.random, least, most)
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	f := random.Float64()
	return least + time.Duration(f*f*float64(most-least))
}
