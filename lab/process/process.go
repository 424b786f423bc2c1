package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ID names one process for ever.
type ID struct {
	PID int `json:"pid"`
	// Start is the time of its start, in the system's own measure.
	Start uint64 `json:"start"`
	// Boot names the time between two boots of the system, if Start is counted from one.
	Boot string `json:"boot"`
}

// State is what a process does, in the letters that the system has for it: 'T' is stopped by a signal, 'Z' has ended
// and waits to be reaped, 0 is gone; the others are alive.
type State byte

// Stopped says whether a signal has stopped the process.
func (s State) Stopped() bool { return s == 'T' }

// Gone says whether the process has ended.
func (s State) Gone() bool { return s == 0 || s == 'Z' || s == 'X' }

// Identify names the process that has this number now. Without one the error is fs.ErrNotExist.
func Identify(pid int) (ID, error) {
	id, _, err := look(pid)
	return id, err
}

// State is what the process does now.
func (id ID) State() State {
	now, state, err := look(id.PID)
	if err != nil || now != id {
		return 0
	}
	return state
}

// Signal sends a signal to this very process. It is os.ErrProcessDone if the process has ended.
func (id ID) Signal(sig syscall.Signal) error {
	// On Linux, the handle stays with the process that had the number when it was made. So if that one is ours, the
	// signal cannot reach another.
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

// RSS is the process's resident memory in bytes; 0 when it is gone.
func (id ID) RSS() int64 {
	if id.State().Gone() {
		return 0
	}
	return memory(id.PID)
}
