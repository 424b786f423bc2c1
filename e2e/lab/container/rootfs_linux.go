package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// enterNew creates the namespaces and the file system of a container, and moves the current thread
// into it.
func enterNew(config Config) (_ *namespaces, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return nil, fmt.Errorf("creating namespaces: %w", err)
	}
	space, err := hold()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			space.close()
		}
	}()
	if err := unix.Sethostname([]byte(config.Hostname)); err != nil {
		return nil, fmt.Errorf("setting the host name %q: %w", config.Hostname, err)
	}
	// The mounts that follow must not propagate to the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("keeping mounts to itself: %w", err)
	}
	// In the new root these paths are not reachable any more.
	volumes, err := openVolumes(config.Mounts)
	defer volumes.close()
	if err != nil {
		return nil, err
	}
	own, err := newRoot(config.Dir)
	defer own.close()
	if err != nil {
		return nil, err
	}
	if err := volumes.attach(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join("/", config.WorkingDir), 0o755); err != nil {
		return nil, fmt.Errorf("creating the working folder: %w", err)
	}
	if config.ReadOnlyRoot {
		if err := own.makeReadOnly(); err != nil {
			return nil, err
		}
	}
	return space, nil
}

// mounts are file descriptors of mounts.
type mounts []int

func (m mounts) close() {
	for _, fd := range m {
		_ = unix.Close(fd)
	}
}

// makeReadOnly does not change what is mounted on top.
func (m mounts) makeReadOnly() error {
	for _, fd := range m {
		if err := setReadOnly(fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// newRoot creates a root file system in a folder, and enters it. It returns the container's own
// mounts that it may write to; with an error those that were created so far.
//
// A single overlay of the machine's root would be simpler, but a user namespace does not allow
// that: it could uncover files that are hidden by other mounts. So there is one for each folder of
// the root.
func newRoot(dir string) (own mounts, err error) {
	root := filepath.Join(dir, "root")
	if err := mountOwn(&own, root, "tmpfs", "mode=755"); err != nil {
		return own, err
	}
	if err := mountLayers(&own, dir, root); err != nil {
		return own, err
	}
	for _, path := range []string{"/tmp", "/var/tmp"} {
		if err := errors.Join(os.MkdirAll(root+path, 0o755), os.Chmod(root+path, 0o1777)); err != nil {
			return own, fmt.Errorf("populating the root: %w", err)
		}
	}
	for _, path := range []string{"/run", "/var/lib", "/var/log"} {
		if err := os.MkdirAll(root+path, 0o755); err != nil {
			return own, fmt.Errorf("populating the root: %w", err)
		}
	}
	if err := os.Symlink("/run", root+"/var/run"); err != nil {
		return own, fmt.Errorf("populating the root: %w", err)
	}
	if err := bind("/proc", root+"/proc", false); err != nil {
		return own, err
	}
	if err := bind("/sys", root+"/sys", true); err != nil {
		return own, err
	}
	if err := mountDev(root + "/dev"); err != nil {
		return own, err
	}
	if err := unix.Chdir(root); err != nil {
		return own, fmt.Errorf("entering the container's root: %w", err)
	}
	// The old root is moved over the new one, and is then unmounted there.
	if err := unix.PivotRoot(".", "."); err != nil {
		return own, fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return own, fmt.Errorf("unmounting the machine's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return own, fmt.Errorf("entering the container's root: %w", err)
	}
	return own, nil
}

// mountOwn mounts a file system that is the container's own.
func mountOwn(own *mounts, path, kind, options string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("creating a mount point: %w", err)
	}
	if err := unix.Mount(kind, path, kind, 0, options); err != nil {
		return fmt.Errorf("mounting %s: %w", path, err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	*own = append(*own, fd)
	return nil
}

// mountLayers puts overlays over the folders of the machine's root.
func mountLayers(own *mounts, dir, root string) error {
	// Of these a container has its own.
	taken := []string{"proc", "sys", "dev", "run", "var", "tmp"}
	entries, err := os.ReadDir("/")
	if err != nil {
		return fmt.Errorf("reading the machine's root: %w", err)
	}
	mounted, err := mountPoints()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if slices.Contains(taken, name) {
			continue
		}
		switch source, target := "/"+name, filepath.Join(root, name); {
		case entry.Type() == os.ModeSymlink: // /bin → usr/bin
			link, err := os.Readlink(source)
			if err == nil {
				err = os.Symlink(link, target)
			}
			if err != nil {
				return fmt.Errorf("copying a link: %w", err)
			}
		case entry.IsDir():
			err := mountLayer(own, source, target, filepath.Join(dir, "layers", name))
			if errors.Is(err, unix.EINVAL) {
				// Something is mounted below, in a user namespace, or it is no file system for an overlay.
				err = bind(source, target, true)
			} else if err == nil {
				err = bindBelow(mounted, source, root)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// bindBelow mounts the mounts below a folder of the machine, which an overlay of the folder does
// not show. They are read-only.
func bindBelow(mounted []string, dir, root string) error {
	var done []string // Mounts below them are included.
	for _, path := range mounted {
		below := func(parent string) bool { return strings.HasPrefix(path, parent+"/") }
		if !below(dir) || slices.ContainsFunc(done, below) {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			continue // It is hidden by another mount, or not accessible.
		}
		if err := bind(path, filepath.Join(root, path), true); err != nil {
			return err
		}
		done = append(done, path)
	}
	return nil
}

func mountLayer(own *mounts, source, target, dir string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("looking at a layer: %w", err)
	}
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755), os.Chmod(upper, info.Mode())); err != nil {
		return fmt.Errorf("creating a layer: %w", err)
	}
	return mountOwn(own, target, "overlay", "lowerdir="+source+",upperdir="+upper+",workdir="+work)
}

// mountPoints are where something is mounted, but for the root; what is mounted below another comes
// after it.
func mountPoints() ([]string, error) {
	infos, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) { return info.Mountpoint == "/", false })
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	var paths []string
	for _, info := range infos {
		paths = append(paths, info.Mountpoint)
	}
	return paths, nil
}

// mountDev creates a /dev with the usual devices.
func mountDev(dev string) error {
	var writable mounts // also with a read-only root
	defer func() { writable.close() }()
	if err := mountOwn(&writable, dev, "tmpfs", "mode=755"); err != nil {
		return err
	}
	if err := mountOwn(&writable, dev+"/shm", "tmpfs", "mode=1777"); err != nil {
		return err
	}
	for name, target := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink("/proc/self/"+target, filepath.Join(dev, name)); err != nil {
			return fmt.Errorf("populating /dev: %w", err)
		}
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind("/dev/"+name, filepath.Join(dev, name), false); err != nil {
			return err
		}
	}
	return nil
}
