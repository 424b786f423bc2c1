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
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

var (
	workOf = flag.String("work-of", "1,4", "numbers of replicas of TestWorkOfReplicas")
	roots  = flag.Int("work-roots", 16, "MachineDeployments of TestWorkOfReplicas")
	sizeOf = flag.Int("work-size", 10, "machines of each of these, of which ten are replaced at a time")
	// Read one with "go tool pprof -tags": samples of each replica.
	profiles = flag.String("work-profiles", "", "folder that gets CPU profiles for each number of replicas, "+
		"of a minute at rest, rest-N.pprof, and of the work after that, of-N.pprof, "+
		"and for each number of MachineDeployments at rest, rest-of-N.pprof; empty for none")
)

// workNamespaces is how many namespaces TestWorkOfReplicas has: a replica emits 1,000 Events for
// one, and 20 in a second, so that a fleet of one would emit fewer than others.
const workNamespaces = 16

// TestWorkOfReplicas: what a fleet requests for each machine does not depend on the number of its
// replicas. With -work-profiles it shows what each replica computes.
func TestWorkOfReplicas(t *testing.T) {
	t.Parallel()
	var first map[string]int
	for part := range strings.SplitSeq(*workOf, ",") {
		replicas, err := strconv.Atoi(part)
		if err != nil {
			t.Fatal(err)
		}
		requests := requestsOfFleet(t, replicas)
		if first == nil {
			first = requests
			continue
		}
		for kind, n := range requests {
			if strings.HasSuffix(kind, writes) && float64(n) > 1.05*float64(first[kind]) {
				t.Errorf("%d replicas: got %d requests %q, %s replicas sent %d", replicas, n, kind, *workOf, first[kind])
			}
		}
	}
}

// requestsOfFleet has a fleet create, replace and delete machines. It returns its requests but for
// Leases, whose number depends on the time, by place and kind.
func requestsOfFleet(t *testing.T, replicas int) (requests map[string]int) {
	t.Helper()
	o := replicaOptions(func(o *Options) {
		o.Fleet.Slots, o.ConcurrentSyncs = max(slotsOfTrial, 8*replicas), DefaultOptions().ConcurrentSyncs
	})
	profiler := startProfiler()
	defer close(profiler)
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		namespaceOf := func(i int) string { return fmt.Sprint("work-", i%workNamespaces) }
		for i := range workNamespaces {
			r.createClass(namespaceOf(i))
		}
		for i := range replicas {
			r.start(fmt.Sprint("fleet-", i))
		}
		r.waitCheaply("slots are held", func() bool { return r.unowned() == 0 })
		r.waitCheaply("the fleet is at rest", nil)
		end := profiler.begin(t, fmt.Sprint("rest-", replicas))
		r.waitCheaply("a minute at rest has passed", nil)
		end()
		var mu sync.Mutex
		requests = map[string]int{}
		count := &requestCount{n: map[string]float64{}}
		r.watch = func(q request, h *http.Request) {
			count.add(q, h)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case strings.Contains(q.path, "/events"):
				requests["Events"]++
			case h.URL.Query().Has("dryRun"): // reads a token: a replica does not know those of machines that it took over
				requests[q.place+" "+gets]++
			case !strings.Contains(q.path, "/leases"):
				requests[q.place+" "+q.kind]++
			}
		}
		machines := *sizeOf * *roots
		defer func(begun time.Time) { t.Logf("%d replicas worked for %v", replicas, time.Since(begun)) }(time.Now())
		defer profiler.begin(t, fmt.Sprint("of-", replicas))()
		passes := r.passes()
		phase := func(what string) {
			t.Log(what + ":" + r.perMachine(count, passes, machines))
			passes = r.passes()
			count.begin()
		}
		for i := range *roots {
			r.createRoot(&root{namespace: namespaceOf(i), name: fmt.Sprint("d-", i), replicas: *sizeOf, surge: 10})
		}
		r.waitCheaply("machines run", func() bool { return r.running("") == machines })
		phase("created")
		for i := range *roots {
			r.relabelTemplate(namespaceOf(i), fmt.Sprint("d-", i), "2")
		}
		r.waitCheaply("machines are replaced", func() bool { return r.running("2") == machines && len(r.control.List("machines")) == machines })
		phase("replaced")
		for i := range *roots {
			r.control.Delete("machinedeployments", namespaceOf(i), fmt.Sprint("d-", i))
		}
		r.waitCheaply("machines are gone", func() bool { return len(r.control.List("machines"))+len(r.control.List("machinesets")) == 0 })
		phase("deleted")
		mu.Lock()
		defer mu.Unlock()
		for _, kind := range slices.Sorted(maps.Keys(requests)) {
			t.Logf("%d replicas, %d machines created, replaced and deleted: %.2f %s for each machine",
				replicas, machines, float64(requests[kind])/float64(machines), kind)
		}
	})
	return requests
}

// perMachine returns what was counted and the passes since then, divided by the number of machines.
func (t *trial) perMachine(count *requestCount, before map[string]float64, machines int) (text string) {
	for runner, n := range t.passes() {
		count.n["passes of "+runner] = n - before[runner]
	}
	for _, what := range slices.Sorted(maps.Keys(count.n)) {
		if n := count.n[what] / float64(machines); n >= 0.005 {
			text += fmt.Sprintf(" %.2f %s,", n, what)
		}
	}
	return text
}

// passes returns how many passes have ended, by the name of their runner.
func (t *trial) passes() map[string]float64 {
	n := map[string]float64{}
	for _, p := range t.processes {
		for _, m := range p.metrics()["controller_runtime_reconcile_total"].GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "controller" {
					n[label.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// running counts the machines that run; of a version of their template, unless it is empty.
func (t *trial) running(version string) (n int) {
	for _, o := range t.control.List("machines") {
		phase, _, _ := unstructured.NestedString(o.Object, "status", "currentStatus", "phase")
		if phase == string(v1alpha1.MachineRunning) && (version == "" || o.GetLabels()["version"] == version) {
			n++
		}
	}
	return n
}

// waitCheaply is until without the checks of objects, whose work grows with their number. Without a
// condition it lets a minute pass.
func (t *trial) waitCheaply(what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Hour); ; {
		time.Sleep(stepTime)
		synctest.Wait()
		t.boot()
		t.collect()
		switch {
		case cond != nil && cond(), cond == nil && time.Until(end) < 59*time.Minute:
			return
		case time.Now().After(end):
			t.Fatalf("expected within an hour that %s", what)
		}
	}
}

// profiler begins and ends CPU profiles, whose goroutine must not be in a bubble: its timers are
// those of the machine.
type profiler chan func()

func startProfiler() profiler {
	p := make(profiler)
	go func() {
		for do := range p {
			do()
		}
	}()
	return p
}

// begin begins a profile, and returns once it has begun.
func (p profiler) begin(t *testing.T, name string) (end func()) {
	t.Helper()
	if *profiles == "" {
		return func() {}
	}
	file, err := os.Create(filepath.Join(*profiles, name+".pprof"))
	if err != nil {
		t.Fatal(err)
	}
	p <- func() { err = pprof.StartCPUProfile(file) }
	p <- func() {} // the one before is done
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		p <- func() {
			pprof.StopCPUProfile()
			_ = file.Close()
		}
		p <- func() {}
	}
}
