package container

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is an open mount, to be attached at another path.
type tree struct {
	fd     int
	isDir  bool
	target string
}

// trees are mounted in their order.
type trees []tree

// openVolumes opens volumes. With an error it returns those that were opened so far.
func openVolumes(volumes []Mount) (trees, error) {
	// One may lie in another, which has to be mounted first.
	ordered := slices.SortedStableFunc(slices.Values(volumes), func(a, b Mount) int { return cmp.Compare(depth(a.Target), depth(b.Target)) })
	var opened trees
	for _, m := range ordered {
		t, err := openTree(m.Source, filepath.Join("/", m.Target), m.ReadOnly)
		if err != nil {
			return opened, err
		}
		opened = append(opened, t)
	}
	return opened, nil
}

func depth(path string) int { return strings.Count(filepath.Clean(path), "/") }

func (ts trees) attach() error {
	for _, t := range ts {
		if err := t.attach(); err != nil {
			return err
		}
	}
	return nil
}

func (ts trees) close() {
	for _, t := range ts {
		_ = unix.Close(t.fd)
	}
}

// bind mounts one path at another.
func bind(source, target string, readOnly bool) error {
	t, err := openTree(source, target, readOnly)
	if err != nil {
		return err
	}
	defer trees{t}.close()
	return t.attach()
}

func openTree(source, target string, readOnly bool) (tree, error) {
	info, err := os.Stat(source)
	if err != nil {
		return tree{}, fmt.Errorf("the source of the mount at %s: %w", target, err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, fmt.Errorf("opening %s: %w", source, err)
	}
	t := tree{fd: fd, isDir: info.IsDir(), target: target}
	if !readOnly {
		return t, nil
	}
	if err := setReadOnly(fd, unix.AT_RECURSIVE); err != nil {
		trees{t}.close()
		return tree{}, fmt.Errorf("%s: %w", source, err)
	}
	return t, nil
}

// attach creates the target, if need be, and mounts the tree on it.
func (t tree) attach() error {
	dir := t.target
	if !t.isDir {
		dir = filepath.Dir(t.target)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating a mount point: %w", err)
	}
	if !t.isDir {
		file, err := os.OpenFile(t.target, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return fmt.Errorf("creating a mount point: %w", err)
		}
		_ = file.Close()
	}
	if err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS); err != nil {
		return fmt.Errorf("mounting on %s: %w", t.target, err)
	}
	return nil
}

func setReadOnly(fd int, flags uint) error {
	err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return fmt.Errorf("making a mount read-only: %w", err)
	}
	return nil
}
