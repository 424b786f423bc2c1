package leases

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Lock is an exclusive lock on a file in a folder that outlives the processes of a pod, but is used
// by this pod only. Holding it proves that every earlier process of the pod that held it is gone,
// also a stopped one: only then does the kernel release it.
type Lock struct{ file *os.File }

// AcquireLock acquires the lock, and returns nil if another process has it. It is held until the
// process ends, or Close. Errors: the folder cannot be written.
func AcquireLock(folder string) (*Lock, error) {
	name := filepath.Join(folder, "session.lock")
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the folder is a flag
	if err != nil {
		return nil, fmt.Errorf("open the file lock, see --state-dir: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Lock{file}, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}

// Close releases the lock. A nil Lock is not held.
func (l *Lock) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
