package transaction

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk/disktest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

var (
	crashes = flag.Int("crashes", 300,
		"runs of TestCrash; each draws a tree, two configs and the calls at which the process is killed or fails")
	crashSeed = flag.Uint64("crash-seed", 0, "seed of TestCrash's first run; 0 means that of the date")
)

const stateDir = "/var/lib/machine-config-daemon"

// crashRun is one run of TestCrash.
type crashRun struct {
	*testing.T

	random *rand.Rand
	model  *disktest.Model
	ids    int
	log    []string
	// unsynced has synchronizing have no effect.
	unsynced bool
	failures []string
}

// Errorf records what is wrong.
func (r *crashRun) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func newCrashRun(t *testing.T, seed uint64) *crashRun {
	t.Helper()
	return &crashRun{T: t, random: rand.New(rand.NewPCG(seed, 0)), model: disktest.NewModel()}
}

// report fails the test if something is wrong.
func (r *crashRun) report(format string, args ...any) {
	if len(r.failures) == 0 {
		return
	}
	for _, line := range append(r.log, r.failures...) {
		r.Log(line)
	}
	r.Fatalf(format, args...)
}

// TestCrash: regardless of which call is the last one of a process, with or without a loss of
// power, and however often that happens while the next process recovers, the tree is the old one or
// the new one, and the manifest says which.
func TestCrash(t *testing.T) {
	first := *crashSeed
	if first == 0 {
		first = uint64(time.Now().Unix() / 86400)
	}
	t.Logf("%d runs from seed %d; repeat one with -crashes=1 -crash-seed=<its seed>", *crashes, first)
	for i := range *crashes {
		seed := first + uint64(i)
		r := newCrashRun(t, seed)
		r.run()
		r.report("seed %d failed; repeat it with -crashes=1 -crash-seed=%d", seed, seed)
	}
}

// TestCrashWithoutSynchronizingIsDetected: the disk of these tests loses what is not synchronized,
// and the checks notice.
func TestCrashWithoutSynchronizingIsDetected(t *testing.T) {
	for seed := range uint64(1000) {
		r := newCrashRun(t, seed)
		r.unsynced = true
		r.run()
		if len(r.failures) > 0 {
			return
		}
	}
	t.Error("expected a mix of old and new within 1000 runs on a disk that never synchronizes")
}

// TestCrashAtEveryCall kills one transaction and its recovery at each call that changes something.
func TestCrashAtEveryCall(t *testing.T) {
	for _, fault := range []disktest.Fault{disktest.KillBefore, disktest.KillAfter, disktest.KillWithin, disktest.Fail, disktest.FailAfter} {
		for call := 0; ; call++ {
			r := newCrashRun(t, 7)
			r.plant()
			r.apply(r.model)
			r.model.Sync()
			reached := r.attempt(func(n int) disktest.Fault {
				if n == call {
					return fault
				}
				return disktest.NoFault
			}, true)
			r.report("fault %d at call %d", fault, call)
			if !reached {
				if call < 20 {
					t.Fatalf("the transaction executed only %d calls that change something", call)
				}
				break
			}
		}
	}
}

func (r *crashRun) logf(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// run applies a few configs, each with faults.
func (r *crashRun) run() {
	r.plant()
	for range 1 + r.random.IntN(3) {
		last := r.random.IntN(80)
		every := 1 + r.random.IntN(60)
		failing := r.random.IntN(3) == 0
		r.attempt(func(call int) disktest.Fault {
			switch {
			case call < last:
				return disktest.NoFault
			case call > last && (failing && r.random.IntN(4) > 0 || !failing && r.random.IntN(every) > 0):
				return disktest.NoFault
			case failing:
				return []disktest.Fault{disktest.Fail, disktest.FailAfter}[r.random.IntN(2)]
			}
			return []disktest.Fault{disktest.KillBefore, disktest.KillAfter, disktest.KillWithin}[r.random.IntN(3)]
		}, r.random.IntN(2) == 0)
		if len(r.failures) > 0 {
			return
		}
	}
}

// attempt applies a config with faults, and recovers with faults and at last without. It reports
// whether a fault happened.
func (r *crashRun) attempt(at func(call int) disktest.Fault, losesPower bool) (reached bool) {
	before := r.model.Tree(stateDir)
	from := r.open(r.model).Manifest()
	r.model.Sync()
	after := maps.Clone(before)
	change := r.draw()
	for range 12 { // processes, the last ones without faults
		r.ids++
		counted := at
		if reached && r.random.IntN(4) == 0 {
			counted = nil
		}
		faulty := &disktest.Faulty{FS: r.model, At: func(call int) disktest.Fault {
			if counted == nil {
				return disktest.NoFault
			}
			fault := counted(call)
			reached = reached || fault != disktest.NoFault
			return fault
		}}
		var machine disk.FS = faulty
		if r.unsynced {
			machine = disktest.Unsynced{FS: faulty}
		}
		err := r.process(machine, change)
		r.logf("process %d executed %d calls: %v", r.ids, faulty.Calls(), err)
		change = nil // later processes only recover
		if faulty.Killed() && losesPower {
			r.model = r.model.LosePower(r.random)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, disktest.ErrKilled) && !errors.Is(err, disktest.ErrFault) {
			r.Errorf("a process ended with %v", err)
			return reached
		}
	}
	store, err := Open(r.model, stateDir)
	if err != nil {
		r.Errorf("the records cannot be read: %v", err)
		return reached
	}
	if _, err := store.Recover(); err != nil {
		r.Errorf("recovery without faults: %v", err)
		return reached
	}
	if store.Journal() != nil {
		if err := store.Finish(); err != nil {
			r.Errorf("finish without faults: %v", err)
		}
	}
	r.check(before, after, from, store.Manifest())
	return reached
}

// process is the life of a daemon: it recovers, and applies a change if there is one.
func (r *crashRun) process(machine disk.FS, change *drawn) error {
	store, err := Open(machine, stateDir)
	if err != nil {
		return err
	}
	next, err := store.Recover()
	if err != nil {
		return err
	}
	if next == journal.Continue {
		if r.random.IntN(3) == 0 {
			return store.Undo("its actions have failed", "boot")
		}
		return store.Finish()
	}
	if change == nil {
		return nil
	}
	if err := change.apply(store, machine, fmt.Sprintf("t%d", r.ids)); err != nil {
		return err
	}
	if r.random.IntN(3) == 0 {
		return store.Undo("its actions have failed", "boot")
	}
	return store.Finish()
}

// apply applies a drawn config without faults.
func (r *crashRun) apply(machine disk.FS) {
	r.ids++
	store := r.open(machine)
	if err := r.draw().apply(store, machine, fmt.Sprintf("t%d", r.ids)); err != nil {
		r.Fatal(err)
	}
	if err := store.Finish(); err != nil {
		r.Fatal(err)
	}
}

func (r *crashRun) open(machine disk.FS) *Store {
	store, err := Open(machine, stateDir)
	if err != nil {
		r.Fatalf("open the records: %v", err)
	}
	return store
}

// check compares the tree with the old one, and with that of the manifest.
func (r *crashRun) check(before, after map[string]string, from, now journal.Manifest) {
	tree := r.model.Tree(stateDir)
	if now.Transaction == from.Transaction {
		if diff := cmp.Diff(before, tree); diff != "" {
			r.Errorf("the manifest is the old one, and the tree is not (-old +found):\n%s", diff)
		}
		return
	}
	// The new tree: the old one, with the managed paths as in the manifest, and those restored that
	// are not managed any more.
	for name := range from.Managed {
		if _, stays := now.Managed[name]; !stays {
			delete(after, name)
		}
	}
	observed, err := Observe(r.model, slices.Sorted(maps.Keys(from.Managed)))
	if err != nil {
		r.Fatal(err)
	}
	for name, managed := range from.Managed {
		if _, stays := now.Managed[name]; !stays && observed.Paths[name] != managed.Original {
			r.Errorf("%s is not managed any more; expected its original %v, found %v", name, managed.Original, observed.Paths[name])
		}
		delete(tree, name)
	}
	drift, err := r.open(r.model).Drift()
	if err != nil || len(drift) > 0 {
		r.Errorf("the manifest is the new one, and the tree is not: %v %v", drift, err)
	}
	for name := range now.Managed {
		delete(tree, name)
		delete(after, name)
		for _, folder := range plan.Folders([]string{name}) {
			delete(tree, folder)
			delete(after, folder)
		}
	}
	for name := range from.Managed {
		delete(tree, name)
		delete(after, name)
		for _, folder := range plan.Folders([]string{name}) {
			delete(tree, folder)
			delete(after, folder)
		}
	}
	if diff := cmp.Diff(after, tree); diff != "" {
		r.Errorf("the manifest is the new one, and paths that no config has are not as before (-before +found):\n%s", diff)
	}
}
