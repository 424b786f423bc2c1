package transaction

import (
	"fmt"
	"maps"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// names are the paths of drawn trees and configs: some share folders, and some folders do not exist
// before.
func names() []string {
	return []string{"/etc/a", "/etc/b", "/etc/new/c", "/etc/new/deeper/d", "/etc/old/e", "/top", "/srv/x/y/z"}
}

// drawn is a config for a machine.
type drawn struct {
	desired  map[string]plan.Entry
	contents map[string][]byte
}

// plant puts files and links where a config may want others.
func (r *crashRun) plant() {
	for _, folder := range []string{"/etc", "/etc/old", "/var", "/var/lib"} {
		if _, err := r.model.Mkdir(folder); err != nil {
			r.Fatal(err)
		}
	}
	for _, name := range []string{"/etc/a", "/etc/b", "/etc/old/e", "/etc/old/other"} {
		if r.random.IntN(3) == 0 {
			continue
		}
		if r.random.IntN(4) == 0 {
			if err := r.model.Symlink("../elsewhere", name); err != nil {
				r.Fatal(err)
			}
			continue
		}
		file, err := r.model.Create(name)
		if err != nil {
			r.Fatal(err)
		}
		_, _ = file.Write([]byte("the machine's " + name)) // the model's writes do not fail
		_ = file.Chmod(0o640)
		_ = file.Chown(5, 6)
	}
	r.model.Sync()
}

// draw draws a config.
func (r *crashRun) draw() *drawn {
	d := &drawn{desired: map[string]plan.Entry{}, contents: map[string][]byte{}}
	for _, name := range names() {
		state := plan.State{Kind: plan.Absent}
		switch r.random.IntN(6) {
		case 0, 1:
			continue
		case 2:
			state = plan.State{Kind: plan.Link, Target: fmt.Sprint("to-", r.random.IntN(3))}
		case 3, 4:
			content := fmt.Appendf(nil, "%s in version %d", name, r.random.IntN(3))
			state = plan.State{Kind: plan.File, Mode: 0o644, UID: r.random.IntN(2), GID: 3, Digest: plan.Digest(content), Size: int64(len(content))}
			d.contents[state.Digest] = content
		}
		d.desired[name] = plan.Entry{Want: state, Field: "files[" + name + "]"}
	}
	return d
}

// apply plans and applies the config.
func (d *drawn) apply(store *Store, machine disk.FS, id string) error {
	managed := store.Manifest().Managed
	paths := slices.Concat(slices.Collect(maps.Keys(managed)), slices.Collect(maps.Keys(d.desired)))
	slices.Sort(paths)
	observed, err := Observe(machine, slices.Compact(paths))
	if err != nil {
		return err
	}
	p := plan.Compute(plan.World{Managed: managed, Desired: d.desired, Observed: observed, Reserved: []string{stateDir}})
	return store.Apply(Change{ID: id, BootID: "boot", Config: "config-" + id, Content: []byte("config " + id), Plan: p, Contents: d.contents})
}
