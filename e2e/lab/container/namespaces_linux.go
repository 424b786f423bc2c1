package container

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// namespaces are handles of those of a container.
type namespaces struct {
	id inode // of the mount namespace

	mu         sync.RWMutex
	closed     bool
	mount, uts *os.File
}

var errEnded = errors.New("the container has ended")

type inode struct{ dev, ino uint64 }

// hold opens handles of the namespaces of the current thread.
func hold() (*namespaces, error) {
	mount, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return nil, fmt.Errorf("opening the mount namespace: %w", err)
	}
	uts, err := os.Open("/proc/thread-self/ns/uts")
	if err != nil {
		_ = mount.Close()
		return nil, fmt.Errorf("opening the UTS namespace: %w", err)
	}
	n := &namespaces{mount: mount, uts: uts}
	var stat unix.Stat_t
	if err := unix.Fstat(int(mount.Fd()), &stat); err != nil {
		n.close()
		return nil, fmt.Errorf("identifying the mount namespace: %w", err)
	}
	n.id = inode{stat.Dev, stat.Ino}
	return n, nil
}

// enter moves the current thread into the container.
func (n *namespaces) enter() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return errEnded
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("separating the thread: %w", err)
	}
	if err := unix.Setns(int(n.mount.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the mount namespace: %w", err)
	}
	if err := unix.Setns(int(n.uts.Fd()), unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("entering the UTS namespace: %w", err)
	}
	return nil
}

func (n *namespaces) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	_ = n.mount.Close()
	_ = n.uts.Close()
}

// killAll ends all processes in the mount namespace, and returns when there are none.
func (n *namespaces) killAll(clk clock.Clock) {
	for {
		found := 0
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return // Without /proc containers do not work at all.
		}
		for _, entry := range entries {
			pid, err := strconv.Atoi(entry.Name())
			if err != nil {
				continue
			}
			// The handle keeps the number from being used again between the check of the process and its
			// end.
			process, err := os.FindProcess(pid)
			if err != nil {
				continue
			}
			if n.has(pid) {
				found++
				_ = process.Kill()
			}
			_ = process.Release()
		}
		if found == 0 {
			return
		}
		clk.Sleep(time.Millisecond)
	}
}

func (n *namespaces) has(pid int) bool {
	var stat unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/mnt", &stat)
	return err == nil && n.id == inode{stat.Dev, stat.Ino}
}
