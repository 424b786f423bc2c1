package vm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/container"
)

// Paths of programs in the machine.
const (
	hyperkubePath = "/run/hyperkube"
	daemonPath    = "/run/machine-config-daemon"
)

// mountMachine turns the mount namespace of the caller into that of a machine with a disk.
func mountMachine(c *Config, hyperkube string) error {
	// These paths may be hidden by later mounts.
	folders, err := cloneAll(c.folders())
	if err != nil {
		return err
	}
	binaries := map[string]string{hyperkubePath: hyperkube}
	if c.Daemon != "" {
		binaries[daemonPath] = c.Daemon
	}
	programs, err := cloneAll(binaries)
	if err != nil {
		return err
	}
	// The mounts that follow must not propagate to the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts to itself: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mounting a file system on %s: %w", dir, err)
		}
	}
	if err := os.Symlink("/run", "/var/run"); err != nil {
		return fmt.Errorf("populating /var: %w", err)
	}
	for path, tree := range folders {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("populating /var and /run: %w", err)
		}
		if err := attach(tree, path); err != nil {
			return err
		}
	}
	for path, tree := range programs {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			return fmt.Errorf("populating /run: %w", err)
		}
		if err := attach(tree, path); err != nil {
			return err
		}
	}
	return nil
}

// cloneAll opens mounts of paths outside of the machine, by path inside.
func cloneAll(outside map[string]string) (map[string]int, error) {
	trees := map[string]int{}
	for inside, path := range outside {
		tree, err := clone(path)
		if err != nil {
			return nil, err
		}
		trees[inside] = tree
	}
	return trees, nil
}

// clone opens a mount of a path, to be attached elsewhere.
func clone(path string) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("opening %s: %w", path, err)
	}
	return tree, nil
}

func attach(tree int, path string) error {
	err := unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	_ = unix.Close(tree)
	if err != nil {
		return fmt.Errorf("mounting on %s: %w", path, err)
	}
	return nil
}

// tryMachine creates a machine, and runs a container in it.
func tryMachine(dir string) error {
	if err := checkWatches(); err != nil {
		return err
	}
	c := &Config{Dir: dir}
	for _, path := range []string{c.kubeletDir(), c.podLogsDir(), c.rootDir()} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return fmt.Errorf("creating a disk: %w", err)
		}
	}
	if err := mountMachine(c, "/proc/self/exe"); err != nil {
		return err
	}
	trial, err := container.Start(container.Config{
		Dir: "/run/container", Hostname: "check", Args: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}, Clock: clock.RealClock{},
	})
	if err != nil {
		return fmt.Errorf("starting a container: %w", err)
	}
	<-trial.Done()
	if code := trial.Exit().Code; code != 0 {
		return fmt.Errorf("a container that runs true ended with %d", code)
	}
	return nil
}
