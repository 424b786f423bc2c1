package simulation

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

var (
	oneSeed = flag.Int64("seed", -1, "run only this seed, and print its story")
	howMany = flag.Int("seeds", 2000, "how many seeds to run")
	first   = flag.Uint64("first", 0, "the first seed")
	lines   = flag.Int("lines", 400, "how many lines of a story to show at most; 0 is all")
)

// limit is the time that a fleet may take, after the last fault, until every slot is held: a
// call that does not end is cancelled after 30 s and its process exits after another 15 s, the next
// session waits for 15 s of silence of the old one, a slot Lease that was deleted waits 15 s, and
// each of these may follow another.
const limit = 4 * time.Minute

// run is one run of a seed.
func run(seed uint64, broken promises, change adjustment, story *strings.Builder) *world {
	w := &world{
		seed: seed, random: rand.New(rand.NewPCG(seed, 1)), broken: broken, config: member.DefaultConfig(), plan: assignment.DefaultConfig(),
		pods: map[string]*pod{}, story: story,
	}
	w.slots = []int{1, 2, 5}[w.random.IntN(3)]
	w.api, w.checker = newServer(w), newChecker(w)
	w.faults = newFaults(w)
	if change != nil {
		change(w, &w.faults)
	}
	for range 1 + w.random.IntN(4) {
		w.after(w.between(0, 5*time.Second), w.join)
	}
	w.after(time.Second, w.elect)
	w.faults.begin()
	w.run(w.between(40*time.Second, 200*time.Second), func() bool { return false })
	if w.checker.violation != "" {
		return w
	}
	w.faults.end()
	w.settle()
	return w
}

// settle waits until the fleet is at rest, and stays so for a short time.
func (w *world) settle() {
	settled, end := time.Duration(0), w.now+limit
	w.run(end, func() bool {
		if w.checker.atRest() != "" {
			settled = 0
			return false
		}
		if settled == 0 {
			settled = w.now
		}
		return w.now-settled > 2*time.Second
	})
	if missing := w.checker.atRest(); missing != "" {
		w.checker.stuck = w.checker.violation == ""
		w.checker.fail("%v after the last fault: %s", limit, missing)
	}
}

// TestFaults runs many seeds.
func TestFaults(t *testing.T) {
	if *oneSeed >= 0 {
		reportStory(t, uint64(*oneSeed), nil)
		return
	}
	total := runAll(t, worlds.Some(*howMany), nil)
	t.Logf("%+v", total)
	if total.Acts == 0 || total.TakenOver == 0 || total.Late == 0 || total.Declared == 0 || len(total.Exits) < 3 {
		t.Errorf("want runs with every kind of fault and hand-over, got %+v", total)
	}
}

// TestOutages checks that no session ends because the API server is unavailable, for any time.
func TestOutages(t *testing.T) {
	if *oneSeed >= 0 {
		reportStory(t, uint64(*oneSeed), outagesOnly)
		return
	}
	t.Logf("%+v", runAll(t, worlds.Some(*howMany/10), outagesOnly))
}

// TestHandWrittenHolders checks that, regardless of which holders users write into slot Leases,
// every session that has observed the Lease acts alone, and that the slot has one holder in the
// end.
func TestHandWrittenHolders(t *testing.T) {
	if *oneSeed >= 0 {
		reportStory(t, uint64(*oneSeed), handWrittenHolders)
		return
	}
	t.Logf("%+v", runAll(t, worlds.Some(*howMany/4), handWrittenHolders))
}

func reportStory(t *testing.T, seed uint64, change adjustment) {
	t.Helper()
	var story strings.Builder
	w := run(seed, promises{}, change, &story)
	reported := strings.SplitAfter(story.String(), "\n")
	if *lines > 0 && len(reported) > *lines {
		reported = reported[len(reported)-*lines:]
	}
	t.Logf("seed %d: %d slots, at rest at %v, %+v\n%s", seed, w.slots, w.now, w.checker.tally, strings.Join(reported, ""))
	if w.checker.violation != "" {
		t.Errorf("seed %d: at %v: %s", seed, w.checker.at, w.checker.violation)
	}
}

// runAll runs seeds in parallel and reports those that fail.
func runAll(t *testing.T, seeds int, change adjustment) tally {
	t.Helper()
	total := newChecker(nil).tally
	var lock sync.Mutex
	var next atomic.Uint64
	var group sync.WaitGroup
	failed := 0
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < uint64(seeds); i = next.Add(1) - 1 {
				seed := *first + i
				w := run(seed, promises{}, change, nil)
				lock.Lock()
				total.add(w.checker.tally)
				if w.checker.violation != "" {
					if failed++; failed <= 20 {
						t.Errorf("seed %d: at %v: %s (replay: go test ./shard/verification/simulation -run %s -seed=%d)",
							seed, w.checker.at, w.checker.violation, t.Name(), seed)
					}
				}
				lock.Unlock()
			}
		})
	}
	group.Wait()
	if failed > 0 {
		t.Errorf("%d of %d seeds fail", failed, seeds)
	}
	return total
}

func (t *tally) add(other tally) {
	t.Acts += other.Acts
	t.Late += other.Late
	t.Acquired += other.Acquired
	t.TakenOver += other.TakenOver
	t.Suspended += other.Suspended
	t.Declared += other.Declared
	for reason, n := range other.Exits {
		t.Exits[reason] += n
	}
}
