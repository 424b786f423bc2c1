package transaction

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// keepOwner leaves the owner of a file to the operating system: the daemon itself.
const keepOwner = -1

// write creates a file with its content, owner and mode, in the place of an unfinished one, and
// synchronizes it. Owner and mode are set before there is content that others may not read.
func (s *Store) write(name string, content []byte, as plan.State) error {
	if err := s.remove(name); err != nil {
		return err
	}
	file, err := s.fs.Create(name)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	err = func() error {
		if as.UID != keepOwner {
			if err := file.Chown(as.UID, as.GID); err != nil {
				return fmt.Errorf("set the owner of %s to %d:%d: %w", name, as.UID, as.GID, err)
			}
		}
		if err := file.Chmod(as.Mode); err != nil {
			return fmt.Errorf("set the mode of %s to %04o: %w", name, as.Mode, err)
		}
		if _, err := file.Write(content); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := file.Sync(); err != nil {
			return fmt.Errorf("synchronize %s: %w", name, err)
		}
		return nil
	}()
	if closeErr := file.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("close %s: %w", name, closeErr)
	}
	return err
}

// remove removes a file or a link, if there is one.
func (s *Store) remove(name string) error {
	if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// mkdir creates a folder, and synchronizes it and the one above it. Owner and mode are set on what
// was created. One that exists is not changed: another client has created it since the machine was
// observed.
func (s *Store) mkdir(d plan.Directory) error {
	folder, err := s.fs.Mkdir(d.Path)
	if errors.Is(err, fs.ErrExist) {
		info, err := s.fs.Lstat(d.Path)
		if err != nil {
			return fmt.Errorf("create the folder %s: %w", d.Path, err)
		}
		if info.Kind != plan.Folder {
			return fmt.Errorf("create the folder %s: found %s", d.Path, info.Kind)
		}
		return s.sync(path.Dir(d.Path))
	}
	if err != nil {
		return fmt.Errorf("create the folder %s: %w", d.Path, err)
	}
	err = func() error {
		if d.UID != keepOwner {
			if err := folder.Chown(d.UID, d.GID); err != nil {
				return fmt.Errorf("set the owner of %s to %d:%d: %w", d.Path, d.UID, d.GID, err)
			}
		}
		if err := folder.Chmod(d.Mode); err != nil {
			return fmt.Errorf("set the mode of %s to %04o: %w", d.Path, d.Mode, err)
		}
		if err := folder.Sync(); err != nil {
			return fmt.Errorf("synchronize %s: %w", d.Path, err)
		}
		return nil
	}()
	if closeErr := folder.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("close %s: %w", d.Path, closeErr)
	}
	if err != nil {
		return err
	}
	return s.sync(path.Dir(d.Path))
}

// sync synchronizes a file or a folder. One that does not exist has nothing to lose.
func (s *Store) sync(name string) error {
	file, err := s.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("synchronize: %w", err)
	}
	err = file.Sync()
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("synchronize %s: %w", name, err)
	}
	return nil
}

// place makes a path what a state requests. The folder is not synchronized.
func (s *Store) place(name, staged string, as plan.State) error {
	if err := s.remove(staged); err != nil {
		return err
	}
	switch as.Kind {
	case plan.Absent:
		return s.remove(name)
	case plan.Link:
		if err := s.fs.Symlink(as.Target, staged); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	case plan.File:
		content, err := s.Object(as.Digest)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := s.write(staged, content, as); err != nil {
			return err
		}
	case plan.Folder, plan.Other:
		return fmt.Errorf("%s: expected a file, a link or nothing to be requested, got %s", name, as.Kind)
	}
	if err := s.fs.Rename(staged, name); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}
