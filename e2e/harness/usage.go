package harness

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of times in /proc.
const ticksPerSecond = 100

// CPUTime returns the CPU time that a process has used; 0 if it has ended.
func CPUTime(pid int) (used time.Duration) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(text), ") ") // the name of the program may have spaces
	fields := strings.Fields(after)
	if err != nil || len(fields) < 13 {
		return 0
	}
	for _, ticks := range fields[11:13] { // of the user, and of the kernel
		n, _ := strconv.ParseInt(ticks, 10, 64) // the kernel writes a number
		used += time.Duration(n) * time.Second / ticksPerSecond
	}
	return used
}
