package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ID identifies one process, and never another one.
type ID struct {
	PID int `json:"pid"`
	// Start is the time of its start, in the unit of the system.
	Start uint64 `json:"start"`
	// Boot names the time between two boots of the system, if Start is counted from one.
	Boot string `json:"boot"`
}

// ProcessState is the state of a process, in the letters of the system: 'T' is stopped by a signal,
// 'Z' has ended and is not reaped yet, 0 does not exist; the others are alive.
type ProcessState byte

// Stopped reports whether a signal has stopped the process.
func (s ProcessState) Stopped() bool { return s == 'T' }

// Gone reports whether the process has ended.
func (s ProcessState) Gone() bool { return s == 0 || s == 'Z' || s == 'X' }

// Identify returns the ID of the process with this number. Without one the error is fs.ErrNotExist.
func Identify(pid int) (ID, error) {
	id, _, err := look(pid)
	return id, err
}

// State returns the current state of the process.
func (id ID) State() ProcessState {
	now, state, err := look(id.PID)
	if err != nil || now != id {
		return 0
	}
	return state
}

// Signal sends a signal to this process only. The error is os.ErrProcessDone if the process has
// ended.
func (id ID) Signal(sig syscall.Signal) error {
	// On Linux, the handle stays with the process that had the number when it was opened. So if that
	// is the process of the ID, the signal cannot reach another.
	handle, err := os.FindProcess(id.PID)
	if err != nil {
		return fmt.Errorf("finding process %d: %w", id.PID, err)
	}
	defer func() { _ = handle.Release() }()
	if id.State().Gone() {
		return os.ErrProcessDone
	}
	if err := handle.Signal(sig); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return fmt.Errorf("sending %v to process %d: %w", sig, id.PID, err)
	}
	return nil
}

// RSS is the process's resident memory in bytes; 0 when it has ended.
func (id ID) RSS() int64 {
	if id.State().Gone() {
		return 0
	}
	return memory(id.PID)
}
