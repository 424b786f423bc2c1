package replica

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

var (
	landscapeOf = flag.Int("landscape-roots", 0, "MachineDeployments of TestBusiestReplica; 0 skips it")
	landscapeBy = flag.Int("landscape-replicas", 8, "replicas of TestBusiestReplica")
	landscape   = flag.Int("landscape-minutes", 8, "minutes that TestBusiestReplica measures")
)

// TestBusiestReplica: a fifth of the MachineDeployments, whose sizes are log-normal, is rolled at
// any time, half of them one machine after the other and half with a surge of 20 %. The
// busiest replica has at most 1.25 of the mean of the requests; for each minute the test logs that
// and how many slots change their holder. With -work-profiles it has the CPU of each replica.
func TestBusiestReplica(t *testing.T) {
	if *landscapeOf == 0 {
		t.Skip("it takes minutes: set -landscape-roots=1000")
	}
	const (
		boot  = 45 * time.Second // until a VM has joined
		slots = 256
		most  = 100 // machines of a MachineDeployment
	)
	o := replicaOptions(func(o *Options) { o.Fleet.Slots, o.ConcurrentSyncs = slots, DefaultOptions().ConcurrentSyncs })
	profiler := startProfiler()
	defer close(profiler)
	random := rand.New(rand.NewPCG(1, 7))
	size := make([]int, *landscapeOf)
	for i := range size {
		size[i] = int(max(1, min(most, math.Round(5*math.Exp(1.2*random.NormFloat64())))))
	}
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.cloud.Created = func(v *fakecloud.Resource) {
			r.checkCreate(v)
			v.Boots = time.Now().Add(boot)
		}
		r.createClass("a")
		for i := range *landscapeBy {
			r.start(fmt.Sprint("fleet-", i))
		}
		r.createRoot(&root{namespace: "a", name: sample, replicas: most, surge: 1})
		r.waitCheaply("machines run", func() bool { return r.running("") == most })
		r.waitCheaply("the fleet is at rest", nil)
		r.restartWith(len(size), *landscapeBy, func(i int) int { return size[i] })
		for i := range size {
			if i%2 == 0 {
				r.control.Edit("machinedeployments", "a", nameOfCopy(i), func(u *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(u.Object, "20%", "spec", "strategy", "rollingUpdate", "maxSurge") // it is an object
				})
			}
		}
		w := &rolledLandscape{trial: r, random: random, size: size, rolling: map[int]string{}, requests: map[string]int{}}
		r.watch = w.count
		w.minute() // the weights of the rollouts that begin are reported
		all := map[string]int{}
		for minute := range *landscape {
			end := profiler.begin(t, fmt.Sprint("landscape-", minute))
			t.Log(w.minute())
			end()
			for replica, n := range w.requests {
				all[replica] += n
			}
		}
		if got := busiest(all); len(all) != *landscapeBy || got > 1.25 {
			t.Errorf("the busiest of %d replicas has %.2f of the mean of the requests in %d minutes, want at most 1.25 of %d", len(all), got,
				*landscape, *landscapeBy)
		}
	})
}

// rolledLandscape is a fleet whose MachineDeployments are rolled.
type rolledLandscape struct {
	*trial

	random  *rand.Rand
	size    []int
	rolling map[int]string // the new versions of templates, by the number of the MachineDeployment
	begun   int            // how many rollouts

	mu       sync.Mutex
	requests map[string]int // by replica
}

func (w *rolledLandscape) count(q request, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.Contains(q.path, "/leases") {
		w.requests[q.replica]++
	}
}

// roll ends rollouts whose machines are all replaced, and begins others in their place.
func (w *rolledLandscape) roll() {
	updated := map[string]int{}
	for _, m := range w.control.List("machines") {
		updated[m.GetLabels()["root"]+" "+m.GetLabels()["version"]]++
		updated[m.GetLabels()["root"]]++
	}
	for i, version := range w.rolling {
		if name := nameOfCopy(i); updated[name] == w.size[i] && updated[name+" "+version] == w.size[i] {
			delete(w.rolling, i)
		}
	}
	for len(w.rolling) < len(w.size)/5 {
		if i := w.random.IntN(len(w.size)); w.rolling[i] == "" {
			w.begun++
			w.rolling[i] = fmt.Sprint("v", w.begun)
			w.relabelTemplate("a", nameOfCopy(i), w.rolling[i])
		}
	}
}

// holders returns the holders of all slots.
func (w *rolledLandscape) holders() map[string]string {
	holders := map[string]string{}
	for _, lease := range w.control.List("leases") {
		if strings.HasPrefix(lease.GetName(), "fleet-slot-") {
			holders[lease.GetName()], _, _ = unstructured.NestedString(lease.Object, "spec", "holderIdentity")
		}
	}
	return holders
}

// minute lets a minute pass, and describes what happened in it.
func (w *rolledLandscape) minute() string {
	w.mu.Lock()
	clear(w.requests)
	w.mu.Unlock()
	moves, before := 0, w.holders()
	for second := range 60 {
		if second%10 == 0 {
			w.roll()
			w.collect()
		}
		w.pass(time.Second)
		w.boot()
		after := w.holders()
		for slot, holder := range after {
			if before[slot] != holder {
				moves++
			}
		}
		before = after
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d MachineDeployments are rolled, %d machines exist; the busiest of %d replicas has %.2f of the mean of the "+
		"requests; %d slots changed their holder", len(w.rolling), len(w.control.List("machines")), len(w.requests), busiest(w.requests), moves)
}

// busiest returns the largest of some numbers as a multiple of their mean.
func busiest(of map[string]int) float64 {
	all, most := 0, 0
	for _, n := range of {
		all, most = all+n, max(most, n)
	}
	return float64(most) * float64(len(of)) / float64(all)
}
