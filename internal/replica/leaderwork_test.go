package replica

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// atRestFor is for how long TestWorkAtRest measures.
const atRestFor = 20 * time.Minute

var restOf = flag.Int("rest-roots", 4, "MachineDeployments of TestWorkAtRest, of ten machines each")

// TestWorkAtRest: a fleet at rest writes nothing but Leases, and reads what the leader's checks of
// the whole fleet read. With -work-profiles it shows what each replica computes; the leader is one
// of them.
func TestWorkAtRest(t *testing.T) {
	t.Parallel()
	o := replicaOptions(func(o *Options) { o.Fleet.Slots, o.ConcurrentSyncs = slotsOfTrial, DefaultOptions().ConcurrentSyncs })
	begin, end := profileLater(t, fmt.Sprintf("rest-%d", *restOf))
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createClass("a")
		for i := range 2 {
			r.start(fmt.Sprint("fleet-", i))
		}
		for i := range *restOf {
			r.createRoot(&root{namespace: "a", name: fmt.Sprint("d-", i), replicas: 10})
		}
		r.waitCheaply("machines run", func() bool { return r.running("") == 10**restOf })
		for range 10 {
			r.waitCheaply("the fleet is at rest", nil)
		}
		var mu sync.Mutex
		requests := map[string]int{}
		r.watch = func(q request, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if !strings.Contains(q.path, "/leases") {
				requests[fmt.Sprint(q.replica, " ", q.place, " ", q.kind)]++
			}
		}
		begin()
		time.Sleep(atRestFor)
		synctest.Wait()
		end()
		mu.Lock()
		defer mu.Unlock()
		for _, kind := range slices.Sorted(maps.Keys(requests)) {
			t.Logf("%d machines at rest for %s: %d %s", 10**restOf, atRestFor, requests[kind], kind)
			if strings.HasSuffix(kind, writes) {
				t.Errorf("got %d requests %q of a fleet at rest, want none", requests[kind], kind)
			}
		}
	})
}

// profileLater returns what begins and ends the CPU profile with a name, for a bubble: its timers
// are not those of one.
func profileLater(t *testing.T, name string) (begin, end func()) {
	t.Helper()
	if *profiles == "" {
		return func() {}, func() {}
	}
	file, err := os.Create(filepath.Join(*profiles, name+".pprof"))
	if err != nil {
		t.Fatal(err)
	}
	steps, done := make(chan struct{}), make(chan error)
	go func() {
		<-steps
		done <- pprof.StartCPUProfile(file)
		<-steps
		pprof.StopCPUProfile()
		done <- file.Close()
	}()
	step := func() {
		steps <- struct{}{}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return step, step
}
