package orphans

import (
	"flag"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// Flags of the simulation: go test ./controllers/orphans -run TestSweeps -seed=17 -v repeats a
// seed, -seeds=20000 runs more.
var (
	oneSeed = flag.Int64("seed", -1, "run this seed of TestSweeps alone, and print its story with -v")
	howMany = flag.Int("seeds", 60, "how many seeds of TestSweeps to run")
	first   = flag.Uint64("first", 0, "the first seed")
)

// livesFor is for how long faults and users are at work in each world.
const livesFor = 10 * time.Hour

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	bubbles.Main(m)
}

// promises lists what a world may break, to show that it is found.
type promises struct {
	singlePhase, cachedReads, nameAlone, partialLists, noLimit, noBudget, survives bool
	noRequests, noSpacing, usualSweeps                                             bool
}

// breakRules replaces rules of a process, and has its lists come in several pages.
func (b promises) breakRules(o *Controller) {
	o.rules.page = fewAPage
	if b.singlePhase {
		o.rules.age = 0
	}
	if b.noLimit {
		o.cfg.Limit = decide.MaxLimit
	}
	if b.nameAlone {
		o.rules.confirm = func(f decide.Facts) decide.Verdict {
			if f.ByName != nil {
				return decide.Verdict{Do: decide.Wait, Why: "a Machine has its name"}
			}
			return decide.Confirm(f)
		}
	}
	b.breakRequests(o)
	if b.survives {
		o.rules.next = func(record decide.Record, suspects []decide.Suspect, more int) decide.Record {
			next := record.Next(suspects, more)
			maps.Copy(next.Suspects, record.Suspects)
			return next
		}
	}
}

// runWorld runs a seed, and returns the first violation.
func runWorld(t *testing.T, seed uint64, broken promises, story *lockedBuffer) (wrong string, deleted int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, broken, story)
		w.processes = []*process{w.newProcess(t), w.newProcess(t)}
		w.changeLeader(t)
		for begun := time.Now(); time.Since(begun) < livesFor && w.fine(); {
			w.step(t, false)
		}
		w.endFaults(t)
		for _, p := range w.processes {
			p.kill()
			<-p.done
		}
		wrong = w.wrong
		for _, i := range w.cloud.All() {
			if i.Gone {
				deleted++
			}
		}
	})
	return wrong, deleted
}

func (w *world) fine() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong == ""
}

// endFaults ends all faults, and checks that every orphan goes: within two sweeps, or when it is
// approved and the limit allows it.
func (w *world) endFaults(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	w.faults = 0
	clear(w.off)
	w.mu.Unlock()
	for _, namespace := range namespacesOfWorld() {
		for _, class := range []string{"class-1a", "class-1b", "class-2"} {
			if w.control.Get("machineclasses", namespace, class) == nil {
				w.putClass(namespace, class)
			}
		}
	}
	w.changeLeader(t)
	w.deliverLate(true)
	w.tell("quiet")
	w.mu.Lock()
	clear(w.usual)
	clear(w.counted)
	w.mu.Unlock()
	sweeps := 2 + int(w.quarantine/w.period) // one that suspects, those of the quarantine, one that confirms
	for end := time.Now().Add(8*w.period + 2*w.quarantine); time.Now().Before(end) && w.fine(); {
		w.step(t, true)
		for _, i := range w.orphans() {
			if w.usually(i.Namespace+"/"+i.Account) > sweeps && !w.wasHeld(i) {
				w.report("%s %s of %s, which has no machine, is left after %d sweeps", i.Kind, i.ID, i.MachineUID, sweeps)
			}
		}
	}
	for end := time.Now().Add(6 * time.Hour); time.Now().Before(end) && w.fine() && len(w.orphans()) > 0; {
		w.step(t, true)
	}
	for _, i := range w.orphans() {
		w.report("%s %s of %s, which has no machine, is left in the end", i.Kind, i.ID, i.MachineUID)
	}
	if w.broken.atMostRequests() { // others have to be found by what they delete
		w.resolveSurplus()
		w.requestWithoutEnd()
	}
}

// usually returns how many usual sweeps have listed a scope.
func (w *world) usually(scope string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.usual[scope]
}

// wasHeld reports whether an orphan may be left after two sweeps: a limit or a Node that is Ready
// holds it, or did, until it was approved.
func (w *world) wasHeld(i fakecloud.Resource) bool {
	left := 0
	for _, o := range w.cloud.All() {
		if o.Namespace == i.Namespace && o.ControlCluster == "ours" && (o.Live() || time.Since(o.Ends) < 2*time.Hour) {
			left++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.approved[i.ID] || w.isNodeReady(i.NodeName) || left > w.limit || w.reserved(i.Namespace) >= w.limit
}

// reserved is how many deletions of a namespace the ledger has: after a restore or a change of the
// leader they count for longer than an hour.
func (w *world) reserved(namespace string) int {
	lease := w.control.Get("leases", "fleet", "fleet-safety")
	if lease == nil {
		return 0
	}
	ledger, err := decide.ParseLedger(lease.GetAnnotations()[v1alpha1.AnnotationOrphanDeletions])
	if err != nil {
		panic(err)
	}
	return len(ledger.Reserved[namespace])
}

// orphans returns what belongs to no machine and is still there.
func (w *world) orphans() (left []fakecloud.Resource) {
	exist, named := map[types.UID]bool{}, map[string]bool{}
	for _, m := range w.machines() {
		exist[m.uid], named[m.providerID] = true, true
	}
	for _, i := range w.cloud.Live() {
		if i.ControlCluster == "ours" && !exist[i.MachineUID] && !named[i.ID] {
			left = append(left, i)
		}
	}
	return left
}

// TestSweeps runs worlds with the rules as they are.
func TestSweeps(t *testing.T) {
	if *oneSeed >= 0 {
		story := &lockedBuffer{}
		wrong, _ := runWorld(t, uint64(*oneSeed), promises{}, story)
		t.Log(story.b.String())
		if wrong != "" {
			t.Error(wrong)
		}
		return
	}
	all := 0
	for seed := *first; seed < *first+uint64(worlds.Some(*howMany)); seed++ {
		wrong, deleted := runWorld(t, seed, promises{}, nil)
		all += deleted
		if wrong != "" {
			t.Errorf("seed %d: %s; run it again with -run TestSweeps -seed=%d -v", seed, wrong, seed)
		}
	}
	if all == 0 {
		t.Error("nothing was deleted in any world")
	}
	t.Logf("%d orphans were deleted", all)
}

// TestBrokenRules checks that worlds find the absence of each rule.
func TestBrokenRules(t *testing.T) {
	for name, broken := range map[string]promises{
		"a single phase": {singlePhase: true}, "reads from a cache": {cachedReads: true}, "a match by name alone": {nameAlone: true},
		"a part of a list taken as the whole": {partialLists: true}, "no limit": {noLimit: true}, "no deletion budget": {noBudget: true},
		"a suspicion that survives the machine's return": {survives: true},
		"requests without an effect":                     {noRequests: true},
		"a sweep for each request":                       {noSpacing: true}, "surplus VMs that wait for usual sweeps": {usualSweeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(300) {
				if wrong, _ := runWorld(t, seed, broken, nil); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Error("no world found it")
		})
	}
}
