package transaction

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk/disktest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// config requests files by path, owned by this process.
func config(files map[string]string) *drawn {
	d := &drawn{desired: map[string]plan.Entry{}, contents: map[string][]byte{}}
	for name, content := range files {
		state := plan.State{
			Kind: plan.File, Mode: 0o600, UID: os.Geteuid(), GID: os.Getegid(),
			Digest: plan.Digest([]byte(content)), Size: int64(len(content)),
		}
		d.contents[state.Digest] = []byte(content)
		d.desired[name] = plan.Entry{Want: state, Field: name}
	}
	return d
}

func openRoot(t *testing.T) (dir string, machine *disk.Root) {
	t.Helper()
	dir = t.TempDir()
	machine, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = machine.Close() })
	return dir, machine
}

// unsynced is the machine for tests in which the power does not fail, which are a hundred times
// quicker.
func unsynced(machine disk.FS) disk.FS { return disktest.Unsynced{FS: machine} }

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// contents returns the files below a folder, without those of the daemon.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || name == filepath.Join(dir, stateDir) {
			return filepath.SkipDir
		}
		if entry.Type().IsRegular() {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			found[strings.TrimPrefix(name, dir)] = string(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func mustOpen(t *testing.T, machine disk.FS) *Store {
	t.Helper()
	store, err := Open(machine, stateDir)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestProcessIsKilledOnRealDisk kills the process at each call on a file system of the operating
// system.
func TestProcessIsKilledOnRealDisk(t *testing.T) {
	before := map[string]string{"/etc/a": "old a", "/etc/c": "c"}
	after := map[string]string{"/etc/a": "new a", "/etc/new/b": "new b", "/etc/c": "c"}
	for _, fault := range []disktest.Fault{disktest.KillBefore, disktest.KillAfter, disktest.KillWithin, disktest.Fail, disktest.FailAfter} {
		for call, reached := 0, true; reached; call++ {
			dir, machine := openRoot(t)
			for name, content := range before {
				put(t, dir, name, content)
			}
			faulty := &disktest.Faulty{FS: unsynced(machine)} // its power does not fail
			faulty.At = func(n int) disktest.Fault {
				if n == call {
					return fault
				}
				return disktest.NoFault
			}
			store, err := Open(faulty, stateDir)
			if err == nil {
				err = config(map[string]string{"/etc/a": "new a", "/etc/new/b": "new b"}).apply(store, faulty, "t1")
			}
			reached = faulty.Calls() > call
			store = mustOpen(t, unsynced(machine))
			if _, err := store.Recover(); err != nil {
				t.Fatalf("fault %d at call %d: recover: %v", fault, call, err)
			}
			want := before
			if store.Manifest().Transaction == "t1" {
				want = after
			} else if err == nil {
				t.Fatalf("fault %d at call %d: applied without an error, and undone", fault, call)
			}
			if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
				t.Fatalf("fault %d at call %d (-want +found):\n%s", fault, call, diff)
			}
		}
	}
}

func TestRemovedFromConfigRestoresTheMachinesFile(t *testing.T) {
	dir, machine := openRoot(t)
	put(t, dir, "/etc/a", "the machine's")
	store := mustOpen(t, unsynced(machine))
	for i, files := range []map[string]string{{"/etc/a": "1", "/etc/b": "1"}, {"/etc/a": "2", "/etc/b": "2"}, {}} {
		must(t, config(files).apply(store, machine, []string{"t1", "t2", "t3"}[i]))
		must(t, store.Finish())
	}
	if diff := cmp.Diff(map[string]string{"/etc/a": "the machine's"}, contents(t, dir)); diff != "" {
		t.Errorf("(-want +found):\n%s", diff)
	}
	names, err := machine.ReadDir(stateDir + "/objects")
	if err != nil || len(names) != 1 {
		t.Errorf("expected the copy of the configuration only, found %q, %v", names, err)
	}
}

func TestUndoAfterCommitRestoresAndCountsAttempts(t *testing.T) {
	dir, machine := openRoot(t)
	store := mustOpen(t, unsynced(machine))
	c := config(map[string]string{"/etc/deep/a": "1"})
	for attempt := range 3 {
		observed, err := Observe(machine, []string{"/etc/deep/a"})
		must(t, err)
		must(t, store.Apply(Change{
			ID: "t" + string(rune('1'+attempt)), BootID: "b1", Config: "c", Content: []byte("same"), Contents: c.contents,
			Plan:    plan.Compute(plan.World{Desired: c.desired, Observed: observed, UID: os.Geteuid(), GID: os.Getegid()}),
			Actions: plan.Actions{Reboot: true},
		}))
		must(t, store.Undo("it is not healthy", "b2"))
		want := &journal.Failure{ConfigDigest: plan.Digest([]byte("same")), Attempts: attempt + 1, Reason: "it is not healthy", BootID: "b2"}
		if diff := cmp.Diff(want, store.Manifest().Failure); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := os.Stat(filepath.Join(dir, "etc")); !os.IsNotExist(err) {
			t.Errorf("expected folders that were created to be removed, got %v", err)
		}
	}
}

func TestFileThatChangesBetweenPlanAndBackupIsRefused(t *testing.T) {
	dir, machine := openRoot(t)
	put(t, dir, "/etc/a", "old")
	store := mustOpen(t, unsynced(machine))
	observed, err := Observe(machine, []string{"/etc/a"})
	must(t, err)
	c := config(map[string]string{"/etc/a": "new"})
	p := plan.Compute(plan.World{Desired: c.desired, Observed: observed})
	put(t, dir, "/etc/a", "edited")
	if err := store.Apply(Change{ID: "t1", Plan: p, Contents: c.contents}); err == nil {
		t.Error("expected an error")
	}
	if got := contents(t, dir)["/etc/a"]; got != "edited" {
		t.Errorf("got %q", got)
	}
}

func TestDamagedRecordsChangeNothing(t *testing.T) {
	for _, file := range []string{manifestFile, journalFile} {
		dir, machine := openRoot(t)
		put(t, dir, stateDir+"/"+file, `{"version": 1, "id": "`)
		if _, err := Open(machine, stateDir); err == nil {
			t.Errorf("%s: expected an error", file)
		}
	}
}

func TestDamagedObjectIsAnError(t *testing.T) {
	dir, machine := openRoot(t)
	store := mustOpen(t, unsynced(machine))
	digest := plan.Digest([]byte("good"))
	put(t, dir, stateDir+"/objects/"+digest, "bad")
	if _, err := store.Object(digest); err == nil {
		t.Error("expected an error")
	}
}

func TestRefusedPlanIsNotApplied(t *testing.T) {
	_, machine := openRoot(t)
	if err := mustOpen(t, unsynced(machine)).Apply(Change{ID: "t1", Plan: plan.Plan{Refused: []plan.Refusal{{Field: "x"}}}}); err == nil {
		t.Error("expected an error")
	}
}
