package replica

import (
	"flag"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed of TestWholeFleet alone, and print its log with -v")
	howMany = flag.Int("seeds", 30, "how many seeds of TestWholeFleet to run")
	first   = flag.Uint64("first", 0, "the first seed")

	lastingFlag = flag.String("lasting", "", "the fault of TestWholeFleet that does not end; empty means that it is drawn")
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	debug.SetGCPercent(400) // thousands of goroutines are scanned each time
	bubbles.Main(m)
}

// newLogger logs into the story.
func newLogger(t *trial) logr.Logger {
	return funcr.New(func(prefix, args string) { t.logf("  %s %s", prefix, args) }, funcr.Options{})
}

// result is the result of a seed.
type result struct {
	wrong, lasting   string
	requests, starts int
	restores         int
	served           []time.Duration // after changes while the fleet was at rest
}

// runSeed runs one seed in a separate bubble.
func runSeed(t *testing.T, o Options, seed uint64, story *strings.Builder) (of result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, seed, story)
		defer func() {
			r.end()
			of = result{wrong: r.wrong, lasting: r.lastingName, requests: r.oracle.sentAll, starts: r.starts, restores: r.restores, served: r.served}
		}()
		r.live()
	})
	return of
}

// TestWholeFleet runs complete replicas, wired as the binary wires them, against API servers and a
// cloud in memory, under faults that are drawn from a seed. What runs at the same instant has no
// order, so that a seed that fails may have to be run more than once.
func TestWholeFleet(t *testing.T) {
	o := replicaOptions(func(o *Options) {
		o.Health.Timeout, o.Safety.OrphanVMsPeriod, o.Safety.OrphanVMsQuarantine = healthTimeout, sweepPeriod, sweepPeriod
	})
	if *oneSeed >= 0 {
		var story strings.Builder
		of := runSeed(t, o, uint64(*oneSeed), &story)
		t.Logf("seed %d, lasting fault: %s\n%s", *oneSeed, of.lasting, story.String())
		if of.wrong != "" {
			t.Errorf("seed %d: %s", *oneSeed, of.wrong)
		}
		return
	}
	t.Parallel()
	// What no other test shows: machines that were orphaned with their MachineSet while a cache still
	// shows it (29), and a drain whose lists of pods hang (109).
	seeds := []uint64{29, 109}
	for i := range worlds.Some(*howMany) {
		seeds = append(seeds, *first+uint64(i))
	}
	var next atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	requests, starts, restores, failed := 0, 0, 0, 0
	served := map[string][]time.Duration{}
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(seeds)); i = next.Add(1) - 1 {
				seed := seeds[i]
				of := runSeed(t, o, seed, nil)
				mu.Lock()
				requests, starts, restores = requests+of.requests, starts+of.starts, restores+of.restores
				served[of.lasting] = append(served[of.lasting], of.served...)
				if of.wrong != "" {
					failed++
					t.Errorf("seed %d (lasting: %s): %s (replay: go test ./internal/replica -run TestWholeFleet -v -seed=%d)",
						seed, of.lasting, of.wrong, seed)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds, %d failed, %d requests, %d starts of processes, %d restores", len(seeds), failed, requests, starts, restores)
	for _, name := range slices.Sorted(maps.Keys(served)) {
		all := served[name]
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		t.Logf("lasting fault %q: %d changes at rest, served after %s (median), %s (99 %%), %s (longest)",
			name, len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	}
}
