package transaction

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// restore makes a path what it was before its step. What is so already is not written again, only
// synchronized: an earlier attempt may have ended before that.
func (s *Store) restore(step plan.Step, staged string) error {
	observed, err := Observe(s.fs, []string{step.Path})
	if err != nil {
		return err
	}
	for _, kind := range observed.Folders {
		if kind != plan.Folder {
			if step.Before.Kind == plan.Absent && kind == plan.Absent {
				return nil // a folder that was not created yet
			}
			return fmt.Errorf("restore %s: expected a folder above it, found %s; restore it, and start the daemon again", step.Path, kind)
		}
	}
	if observed.Paths[step.Path] != step.Before {
		return s.place(step.Path, staged, step.Before)
	}
	if err := s.remove(staged); err != nil {
		return err
	}
	if step.Before.Kind == plan.File {
		return s.sync(step.Path)
	}
	return nil
}

// rmdir removes a folder that the transaction has created, if it is empty: another program may use
// it already.
func (s *Store) rmdir(name string) error {
	err := s.fs.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("remove the folder %s: %w", name, err)
	}
	return s.sync(path.Dir(name))
}
