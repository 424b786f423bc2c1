package replica

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

var (
	restOf    = flag.Int("rest-roots", 4, "MachineDeployments of TestWorkAtRest, of ten machines each")
	restBy    = flag.Int("rest-replicas", 2, "replicas of TestWorkAtRest")
	restSlots = flag.Int("rest-slots", slotsOfTrial, "slots of TestWorkAtRest")
	restFor   = flag.Duration("rest-for", 20*time.Minute, "for how long TestWorkAtRest measures")
)

// TestWorkAtRest: a fleet at rest writes nothing but Leases, and reads what the leader's checks of
// the whole fleet read. With -work-profiles it shows what each replica computes; the leader is one
// of them. It begins with machines that run, as a fleet that is stopped and started again does.
func TestWorkAtRest(t *testing.T) {
	t.Parallel()
	o := replicaOptions(func(o *Options) { o.Fleet.Slots, o.ConcurrentSyncs = *restSlots, DefaultOptions().ConcurrentSyncs })
	profiler := startProfiler()
	defer close(profiler)
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createClass("a")
		for i := range 2 {
			r.start(fmt.Sprint("fleet-", i))
		}
		r.createRoot(&root{namespace: "a", name: sample, replicas: 10})
		r.waitCheaply("machines run", func() bool { return r.running("") == 10 })
		for range 10 {
			r.waitCheaply("the fleet is at rest", nil)
		}
		for i := 2; i < *restBy; i++ {
			r.start(fmt.Sprint("fleet-", i))
		}
		r.pass(2 * time.Minute)
		r.restartWith(*restOf, *restBy, func(int) int { return 10 })
		r.pass(min(5*time.Minute, *restFor))
		got := r.countAll()
		end := profiler.begin(t, fmt.Sprintf("rest-%d-of-%d", *restBy, *restOf))
		r.pass(*restFor)
		end()
		got.report(t, fmt.Sprintf("%d machines at rest for %s", 10**restOf, *restFor))
		for kind, n := range got.requests {
			if strings.HasSuffix(kind, writes) {
				t.Errorf("got %d requests %q of a fleet at rest, want none", n, kind)
			}
		}
		if *restBy < 3 {
			return
		}
		// A fifth of the replicas is replaced by others, so that at least as many slots move.
		got = r.countAll()
		defer profiler.begin(t, fmt.Sprintf("moves-%d-of-%d", *restBy, *restOf))()
		for i := range *restBy / 5 {
			r.alive()[i].quit()
			r.start(fmt.Sprint("fleet-", *restBy+i))
		}
		r.pass(time.Minute)
		got.report(t, fmt.Sprintf("while %d of %d replicas leave and as many join, in a minute", *restBy/5, *restBy))
	})
}

// restartWith has a fleet that was away begin with so many copies of the sample, of different
// numbers of machines.
func (t *trial) restartWith(copies, replicas int, size func(i int) int) {
	t.Helper()
	// All die at once: slots stay assigned, and each replica lists its objects once when it is
	// back.
	for _, p := range t.alive() {
		t.oracle.lost = append(t.oracle.lost, p.replica) // it is not restarted
		p.crash()
	}
	t.pass(time.Minute)
	t.multiply(copies, size)
	t.Logf("%d machines", len(t.control.List("machines")))
	for i := range replicas {
		t.start(fmt.Sprint("fleet-", i))
	}
	t.pass(20 * time.Second)
	for t.unowned() > 0 {
		t.pass(time.Second)
	}
}

// pass lets time pass, without the work of Kubernetes and users, of which there is none.
func (*trial) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// sample is the name of the MachineDeployment that multiply copies.
const sample = "sample"

// replicasOfObject are numbers of machines in MachineDeployments and MachineSets.
var replicasOfObject = regexp.MustCompile(`("(?:[a-z]*[rR]eplicas|deployment.kubernetes.io/desired-replicas)":"?)[1-9]\d*("?)`)

var slotOnObject = regexp.MustCompile(`"` + regexp.QuoteMeta(v1alpha1.LabelSlot) + `":"\d+"`)

// multiply replaces the sample, whose machines run, by so many copies of it, each in its slot, and
// with the first of its machines, as many as size returns, and all that belongs to these.
func (t *trial) multiply(copies int, size func(i int) int) {
	t.Helper()
	spread, err := assignment.NewSpread(t.options.Fleet.Slots, assignment.ByDeployment)
	if err != nil {
		t.Fatal(err)
	}
	vms := t.cloud.Live()
	rank := map[string]int{} // of the machines of the sample, and of their Nodes, by name
	for i, v := range vms {
		rank[v.Machine], rank[v.NodeName] = i, i
	}
	t.cloud.Change(func(all []*fakecloud.Resource) {
		for _, v := range all {
			v.Ends, v.Gone = time.Now(), true
		}
	})
	for _, of := range []struct {
		server   *apiserver.Server
		resource string
	}{{t.control, "machinedeployments"}, {t.control, "machinesets"}, {t.control, "machines"}, {t.target, "nodes"}} {
		for _, o := range of.server.List(of.resource) {
			if !strings.HasPrefix(o.GetName(), sample) {
				continue
			}
			document, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			of.server.Remove(of.resource, o.GetNamespace(), o.GetName())
			for i := range copies {
				if rank[o.GetName()] >= size(i) {
					continue
				}
				replaced := copied(string(document), i)
				replaced = replicasOfObject.ReplaceAllString(replaced, fmt.Sprintf("${1}%d${2}", size(i)))
				replaced = slotOnObject.ReplaceAllString(replaced, fmt.Sprintf("%q:\"%d\"", v1alpha1.LabelSlot, spread.Of("a", nameOfCopy(i))))
				var object map[string]any
				if err := json.Unmarshal([]byte(replaced), &object); err != nil {
					t.Fatal(err)
				}
				if _, err := of.server.Load(of.resource, object); err != nil {
					t.Fatal(err)
				}
			}
		}
		of.server.Trim(0)
	}
	for i := range copies {
		for _, v := range vms[:size(i)] {
			t.cloud.Add(fakecloud.Resource{
				Resource: driver.Resource{
					Kind: v.Kind, ID: copied(v.ID, i), Namespace: v.Namespace, Machine: copied(v.Machine, i),
					MachineUID: types.UID(copied(string(v.MachineUID), i)), NodeName: copied(v.NodeName, i),
				},
				Addresses: v.Addresses, Account: v.Account, ControlCluster: v.ControlCluster, Ready: true, Joined: true,
			})
		}
	}
}

func nameOfCopy(i int) string { return fmt.Sprintf("copy%05d", i) }

// uidOfTrial matches UIDs, which begin with the name of their server.
var uidOfTrial = regexp.MustCompile(`\b([ct])-([0-9a-f]{16})\b`)

// copied replaces the names and UIDs of the sample, and of what belongs to it, by those of a copy.
func copied(text string, i int) string {
	text = uidOfTrial.ReplaceAllString(text, fmt.Sprintf("${1}-%d-${2}", i))
	return strings.NewReplacer(sample, nameOfCopy(i), "sim:///i-", fmt.Sprintf("sim:///i-%d-", i)).Replace(text)
}

// counted records what replicas have sent and received since some time.
type counted struct {
	mu       sync.Mutex
	requests map[string]int // but for Leases
	bytes    map[string]int64
}

// countAll counts from now on.
func (t *trial) countAll() *counted {
	c := &counted{requests: map[string]int{}, bytes: map[string]int64{}}
	t.watch = func(q request, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !strings.Contains(q.path, "/leases") {
			c.requests[fmt.Sprint(q.replica, " ", q.place, " ", q.kind)]++
		}
	}
	t.network.mu.Lock()
	defer t.network.mu.Unlock()
	t.network.received = func(q request, n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		of := "other objects"
		if strings.Contains(q.path, "/leases") {
			of = "Leases"
		}
		c.bytes[fmt.Sprint(q.replica, " ", of, " ", q.kind)] += int64(n)
	}
	return c
}

func (c *counted) report(t *testing.T, when string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(c.requests)) {
		t.Logf("%s: %d %s", when, c.requests[kind], kind)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.bytes)) {
		t.Logf("%s: %.1f kB received, %s", when, float64(c.bytes[kind])/1000, kind)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("%s: heap of the test and all replicas %d MB", when, memory.HeapInuse>>20)
}
