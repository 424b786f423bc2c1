package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// look identifies the process that has this number now, and returns its state. Start is in clock
// ticks since the boot.
func look(pid int) (ID, ProcessState, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ID{}, 0, fmt.Errorf("reading the boot ID: %w", err)
	}
	line, err := os.ReadFile(procPath(pid, "stat"))
	if errors.Is(err, syscall.ESRCH) { // It ended between open and read.
		return ID{}, 0, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return ID{}, 0, fmt.Errorf("reading about process %d: %w", pid, err)
	}
	state, start, err := parseStat(string(line))
	return ID{PID: pid, Start: start, Boot: string(bytes.TrimSpace(boot))}, state, err
}

func memory(pid int) int64 {
	data, err := os.ReadFile(procPath(pid, "statm"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// WithEnv finds all processes, except the caller's own, that were started with the environment
// variable name=value. Processes of other users are omitted.
func WithEnv(name, value string) ([]ID, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	variable := []byte(name + "=" + value)
	var found []ID
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Identified first: if the number is used again before the environment is read, the ID refers to
		// no process.
		id, err := Identify(pid)
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(procPath(pid, "environ"))
		if err != nil || !contains(environ, variable) || id.State().Gone() {
			continue
		}
		found = append(found, id)
	}
	return found, nil
}

func contains(environ, variable []byte) bool {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(entry, variable) {
			return true
		}
	}
	return false
}

func procPath(pid int, file string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + file
}

// parseStat takes state and start time out of a line of /proc/<pid>/stat, whose second field is the
// command in parentheses, and may hold spaces and parentheses itself.
func parseStat(line string) (ProcessState, uint64, error) {
	const stateField, startField = 0, 19 // counted from the field after the command
	end := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	if end < 0 || len(fields) <= startField || len(fields[stateField]) != 1 {
		return 0, 0, fmt.Errorf("unexpected line in /proc/<pid>/stat: %q", line)
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time in /proc/<pid>/stat: %w", err)
	}
	return ProcessState(fields[stateField][0]), start, nil
}
