package transaction

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// Observe returns what is at paths, and at the folders above them.
func Observe(machine disk.Reader, paths []string) (plan.Observed, error) {
	o := plan.Observed{Paths: map[string]plan.State{}, Folders: map[string]plan.Kind{}}
	below := map[string]bool{"": true} // the folders that are folders
	for _, folder := range plan.Folders(paths) {
		kind := plan.Absent
		if below[parent(folder)] {
			info, err := machine.Lstat(folder)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return plan.Observed{}, fmt.Errorf("look at the machine: %w", err)
			default:
				kind = info.Kind
			}
		}
		o.Folders[folder] = kind
		below[folder] = kind == plan.Folder
	}
	for _, name := range paths {
		state := plan.State{Kind: plan.Absent}
		if below[parent(name)] {
			var err error
			if state, err = stateOf(machine, name); err != nil {
				return plan.Observed{}, fmt.Errorf("look at the machine: %w", err)
			}
		}
		o.Paths[name] = state
	}
	return o, nil
}

// parent returns the folder above a path; that of a path at the top is "".
func parent(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[:i]
		}
	}
	return ""
}

// stateOf returns what is at a path whose folder exists.
func stateOf(machine disk.Reader, name string) (plan.State, error) {
	info, err := machine.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return plan.State{Kind: plan.Absent}, nil
	}
	if err != nil {
		return plan.State{}, err //nolint:wrapcheck // Observe names what it does
	}
	switch info.Kind {
	case plan.File:
		content, info, err := machine.ReadFile(name, maxFile)
		if err != nil {
			return plan.State{}, err //nolint:wrapcheck // Observe names what it does
		}
		return plan.State{
			Kind: plan.File, Mode: info.Mode, UID: info.UID, GID: info.GID,
			Digest: plan.Digest(content), Size: int64(len(content)),
		}, nil
	case plan.Link:
		target, err := machine.Readlink(name)
		if err != nil {
			return plan.State{}, err //nolint:wrapcheck // Observe names what it does
		}
		return plan.State{Kind: plan.Link, Target: target}, nil
	case plan.Absent, plan.Folder, plan.Other:
	}
	return plan.State{Kind: info.Kind}, nil
}
