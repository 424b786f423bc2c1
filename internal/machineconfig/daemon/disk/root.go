package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

const (
	createdFileMode, createdFolderMode = 0o600, 0o700
	// unblocked keeps the open of a FIFO from waiting for its other end.
	unblocked = syscall.O_NONBLOCK | syscall.O_NOCTTY
)

// Root is the FS below a folder. Create one with OpenRoot.
type Root struct{ top *os.Root }

var _ FS = (*Root)(nil)

// OpenRoot returns the FS below a folder of this process's file system. Close it.
func OpenRoot(dir string) (*Root, error) {
	top, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the root folder: %w", err)
	}
	return &Root{top: top}, nil
}

// Close closes the root folder.
func (r *Root) Close() error { return r.top.Close() } //nolint:wrapcheck // it names the folder

// in calls f with the folder of a path, and the path's last name.
func (r *Root) in(name string, f func(folder *os.Root, last string) error) error {
	if why := plan.CheckPath(name); why != "" {
		return fmt.Errorf("%s: %w", why, fs.ErrInvalid)
	}
	folder := r.top
	defer func() {
		if folder != r.top {
			_ = folder.Close() // it was read only
		}
	}()
	parts := strings.Split(name[1:], "/")
	for i, part := range parts[:len(parts)-1] {
		below, err := enter(folder, part, "/"+path.Join(parts[:i+1]...))
		if err != nil {
			return err
		}
		if folder != r.top {
			_ = folder.Close()
		}
		folder = below
	}
	return f(folder, parts[len(parts)-1])
}

// enter opens a folder in another one, and not what a link leads to.
func enter(folder *os.Root, name, full string) (*os.Root, error) {
	below, err := folder.OpenRoot(name)
	if err != nil {
		if entry, statErr := folder.Lstat(name); statErr == nil && entry.Mode().Type() == fs.ModeSymlink {
			return nil, &LinkError{Path: full}
		}
		return nil, fmt.Errorf("open the folder %s: %w", full, err)
	}
	opened, err := below.Stat(".")
	if err == nil {
		err = sameEntry(folder, name, full, opened)
	}
	if err != nil {
		_ = below.Close()
		return nil, err
	}
	return below, nil
}

// sameEntry returns an error if what was opened is not what the folder has at that name, which
// means that a link was followed.
func sameEntry(folder *os.Root, name, full string, opened fs.FileInfo) error {
	entry, err := folder.Lstat(name)
	if err != nil {
		return fmt.Errorf("look at %s: %w", full, err)
	}
	if !os.SameFile(entry, opened) {
		return &LinkError{Path: full}
	}
	return nil
}

// open opens what is at a path itself.
func (r *Root) open(name string) (opened *os.File, err error) {
	err = r.in(name, func(folder *os.Root, last string) error {
		file, err := folder.OpenFile(last, os.O_RDONLY|unblocked, 0)
		if err != nil {
			if entry, statErr := folder.Lstat(last); statErr == nil && entry.Mode().Type() == fs.ModeSymlink {
				return &LinkError{Path: name}
			}
			return fmt.Errorf("open %s: %w", name, err)
		}
		info, err := file.Stat()
		if err == nil {
			err = sameEntry(folder, last, name, info)
		}
		if err != nil {
			_ = file.Close()
			return err
		}
		opened = file
		return nil
	})
	return opened, err
}

// Lstat is Reader's.
func (r *Root) Lstat(name string) (info Info, err error) {
	err = r.in(name, func(folder *os.Root, last string) error {
		found, err := folder.Lstat(last)
		if err != nil {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		info = describe(found)
		return nil
	})
	return info, err
}

// describe converts what the operating system returns.
func describe(found fs.FileInfo) Info {
	info := Info{Kind: plan.Other, Size: found.Size()}
	switch found.Mode().Type() { //nolint:exhaustive // the others are Other
	case 0:
		info.Kind = plan.File
	case fs.ModeDir:
		info.Kind = plan.Folder
	case fs.ModeSymlink:
		info.Kind = plan.Link
	}
	if stat, ok := found.Sys().(*syscall.Stat_t); ok {
		info.Mode, info.UID, info.GID = stat.Mode&0o7777, int(stat.Uid), int(stat.Gid)
	}
	return info
}

// ReadFile is Reader's.
func (r *Root) ReadFile(name string, limit int64) ([]byte, Info, error) {
	file, err := r.open(name)
	if err != nil {
		return nil, Info{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, Info{}, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, Info{}, fmt.Errorf("read %s: expected a regular file, found %s: %w", name, describe(info).Kind, fs.ErrInvalid)
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, Info{}, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(content)) > limit {
		return nil, Info{}, fmt.Errorf("read %s: expected at most %d bytes, found more: %w", name, limit, fs.ErrInvalid)
	}
	return content, describe(info), nil
}

// Readlink is Reader's.
func (r *Root) Readlink(name string) (target string, err error) {
	err = r.in(name, func(folder *os.Root, last string) error {
		target, err = folder.Readlink(last)
		return err //nolint:wrapcheck // it names the path
	})
	return target, err
}

// ReadDir is Reader's.
func (r *Root) ReadDir(name string) ([]string, error) {
	file, err := r.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := file.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", name, err)
	}
	slices.Sort(names)
	return names, nil
}

// Create is Changer's.
func (r *Root) Create(name string) (created File, err error) {
	err = r.in(name, func(folder *os.Root, last string) error {
		file, err := folder.OpenFile(last, os.O_WRONLY|os.O_CREATE|os.O_EXCL, createdFileMode)
		if err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		created = handle{file}
		return nil
	})
	return created, err
}

// Symlink is Changer's.
func (r *Root) Symlink(target, name string) error {
	return r.in(name, func(folder *os.Root, last string) error {
		return folder.Symlink(target, last) //nolint:wrapcheck // it names the path
	})
}

// Mkdir is Changer's.
func (r *Root) Mkdir(name string) (created File, err error) {
	err = r.in(name, func(folder *os.Root, last string) error {
		if err := folder.Mkdir(last, createdFolderMode); err != nil {
			return err //nolint:wrapcheck // it names the path
		}
		file, err := openCreated(folder, last, name)
		if err == nil {
			created = handle{file}
		}
		return err
	})
	return created, err
}

// openCreated opens a folder that was created a moment ago. The owner of the folder above can have
// exchanged it since, and no system call creates and opens a folder. So it has to be as it was
// created: of this process, with the mode of a new one, and empty. A folder that is another one and
// all of that has nothing that its new owner must not have.
func openCreated(folder *os.Root, last, name string) (*os.File, error) {
	file, err := folder.OpenFile(last, os.O_RDONLY|syscall.O_DIRECTORY|unblocked, 0)
	if err != nil {
		return nil, fmt.Errorf("open the folder %s that was created: %w", name, err)
	}
	info, err := file.Stat()
	if err == nil {
		err = sameEntry(folder, last, name, info)
	}
	if err == nil && !isNew(file, describe(info)) {
		err = &ExchangedError{Path: name}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// isNew reports whether a folder is as one that this process has created. It can have the bit by
// which new entries get the group of the folder, as the one above.
func isNew(file *os.File, info Info) bool {
	_, err := file.Readdirnames(1)
	return errors.Is(err, io.EOF) && info.UID == os.Geteuid() && info.Mode&^(createdFolderMode|syscall.S_ISGID) == 0
}

// Rename is Changer's.
func (r *Root) Rename(from, to string) error {
	if path.Dir(from) != path.Dir(to) {
		return fmt.Errorf("rename %s to %s: expected the same folder: %w", from, to, fs.ErrInvalid)
	}
	return r.in(from, func(folder *os.Root, last string) error {
		return folder.Rename(last, path.Base(to)) //nolint:wrapcheck // it names the path
	})
}

// Remove is Changer's.
func (r *Root) Remove(name string) error {
	return r.in(name, func(folder *os.Root, last string) error {
		return folder.Remove(last) //nolint:wrapcheck // it names the path
	})
}

// Open is FS's.
func (r *Root) Open(name string) (File, error) {
	if name == "/" {
		file, err := r.top.Open(".")
		if err != nil {
			return nil, fmt.Errorf("open the root folder: %w", err)
		}
		return handle{file}, nil
	}
	file, err := r.open(name)
	if err != nil {
		return nil, err
	}
	return handle{file}, nil
}

// Lock waits for nothing: it returns an error if another process has locked that file, and else
// keeps the lock until this process ends or the file is closed.
func (r *Root) Lock(name string) (io.Closer, error) {
	file, err := r.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		created, createErr := r.Create(name)
		if createErr != nil && !errors.Is(createErr, fs.ErrExist) {
			return nil, createErr
		}
		if createErr == nil {
			_ = created.Close() // it is empty
		}
		file, err = r.open(name)
	}
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: another process has it: %w", name, err)
	}
	return file, nil
}

// handle is a File of the operating system.
type handle struct{ *os.File }

// Chmod is File's.
func (h handle) Chmod(mode uint32) error {
	return syscall.Fchmod(int(h.Fd()), mode&0o7777) //nolint:wrapcheck // the caller names the file
}
