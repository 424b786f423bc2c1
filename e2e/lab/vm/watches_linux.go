package vm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// inotifyInstances is how many of them a kubelet takes.
const inotifyInstances = 4

// checkWatches checks that a kubelet can watch files here. One that cannot only logs that, and
// never retries: it would run, and never find its CSI driver.
func checkWatches() error {
	for range inotifyInstances {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("a kubelet could not watch its files; the sysctl fs.inotify.max_user_instances limits for how many that works: %w",
				err)
		}
		defer func() { _ = unix.Close(fd) }()
	}
	return nil
}
