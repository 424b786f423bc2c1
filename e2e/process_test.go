//go:build e2e

package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// process is a process on this machine, identified by its number and the time of its start.
type process struct {
	pid   int
	start string
}

// about describes a process.
type about struct {
	parent int
	// text is its command line and its environment, as far as they may be read.
	text string
}

// processes lists the processes of this machine.
func processes(t *testing.T) map[process]about {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	all := map[process]about{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir := "/proc/" + entry.Name()
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name of the command, in parentheses, may have spaces. State, parent, and, much later, the
		// start follow.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 20 || fields[0] == "Z" {
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatalf("%s/stat: %q", dir, stat)
		}
		command, _ := os.ReadFile(dir + "/cmdline")
		environment, _ := os.ReadFile(dir + "/environ")
		all[process{pid, fields[19]}] = about{parent, strings.ReplaceAll(string(command)+"\x00"+string(environment), "\x00", "\n")}
	}
	return all
}

// family returns the processes that have the text in their command line or environment, and their
// descendants.
func family(all map[process]about, text string) map[process]about {
	found := map[process]about{}
	pids := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for p, a := range all {
			if _, known := found[p]; known || p.pid == os.Getpid() || !strings.Contains(a.text, text) && !pids[a.parent] {
				continue
			}
			found[p], pids[p.pid], grown = a, true, true
		}
	}
	return found
}

// living returns those of the processes that still live.
func living(t *testing.T, before map[process]about) (alive []string) {
	t.Helper()
	now := processes(t)
	for p, a := range before {
		if _, lives := now[p]; lives {
			command, _, _ := strings.Cut(a.text, "\n\n")
			alive = append(alive, strconv.Itoa(p.pid)+" "+strings.ReplaceAll(command, "\n", " "))
		}
	}
	return alive
}
