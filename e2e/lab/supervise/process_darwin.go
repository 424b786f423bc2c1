package supervise

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// look identifies the process that has this number now, and returns its state. Start is in seconds
// since 1970.
func look(pid int) (ID, State, error) {
	output, err := exec.Command("ps", "-o", "state=,lstart=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // It takes milliseconds.
	fields := strings.Fields(string(output))
	if len(fields) == 0 { // ps fails in that case, too.
		return ID{}, 0, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return ID{}, 0, fmt.Errorf("asking about process %d: %w", pid, err)
	}
	started, err := time.ParseInLocation("Mon Jan 2 15:04:05 2006", strings.Join(fields[1:], " "), time.Local)
	if err != nil {
		return ID{}, 0, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return ID{PID: pid, Start: uint64(started.Unix())}, State(fields[0][0]), nil
}

func memory(pid int) int64 {
	output, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // It takes milliseconds.
	if err != nil {
		return 0
	}
	kibibytes, err := strconv.ParseInt(string(bytes.TrimSpace(output)), 10, 64)
	if err != nil {
		return 0
	}
	return kibibytes << 10
}

// WithEnv finds all processes, except the caller's own, that were started with the environment
// variable name=value, which must not contain spaces. Processes of other users are omitted.
func WithEnv(name, value string) ([]ID, error) {
	output, err := exec.Command("ps", "-axwwE", "-o", "pid=,command=").Output() //nolint:noctx // It takes milliseconds.
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []ID
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		for _, field := range fields {
			pid, err := strconv.Atoi(fields[0])
			if field != name+"="+value || err != nil || pid == os.Getpid() {
				continue
			}
			if id, state, err := look(pid); err == nil && !state.Gone() {
				found = append(found, id)
			}
			break
		}
	}
	return found, nil
}
