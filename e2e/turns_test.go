//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A test in the shared lab has one turn, one with a lab of its own more, and those in the lab with three replicas, which are few and wait
// for each other, none. With too many turns at a time all processors are busy, each request takes seconds, and deadlines are missed; with
// too few the processors wait for VMs and drains. So their number follows from how idle the processors are, in these bounds.
const (
	fewestTurns = 8
	mostTurns   = 24
)

// turns are the turns of all tests of this process. The two tests that need most have theirs at once.
var turns = newTurnstile(fewestTurns)

// takeTurns waits for turns, which last until the test and its cleanup end.
func takeTurns(t *testing.T, count int) {
	t.Helper()
	turns.take(count)
	begin := time.Now()
	t.Cleanup(func() {
		turns.give(count)
		t.Logf("its turn took %.0f s", time.Since(begin).Seconds()) // the framework counts the wait for it too
	})
}

// turnstile is a semaphore whose limit changes. Of those who wait, the one that needs most is next, and of these the first: what takes longest
// does not start last.
type turnstile struct {
	mu      sync.Mutex
	changed *sync.Cond
	limit   int
	taken   int
	waiting []*int // how many each needs, in their order
}

func newTurnstile(limit int) *turnstile {
	s := &turnstile{limit: limit}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *turnstile) take(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, &count)
	for s.next() != &count || s.taken > 0 && s.taken+count > s.limit {
		s.changed.Wait()
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(one *int) bool { return one == &count })
	s.taken += count
	s.changed.Broadcast()
}

func (s *turnstile) next() *int {
	return slices.MaxFunc(s.waiting, func(a, b *int) int { return cmp.Compare(*a, *b) })
}

func (s *turnstile) give(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= count
	s.changed.Broadcast()
}

// adjust adjusts the limit until the process ends. Where the system does not report how idle it is, the limit stays.
func (s *turnstile) adjust() {
	const interval = 3 * time.Second // in which a test that has just started shows what it needs
	before, err := processorTimes()
	for range time.Tick(interval) {
		if err != nil {
			fmt.Println("e2e: the number of turns does not change:", err)
			return
		}
		var now times
		now, err = processorTimes()
		if total := now.total - before.total; err == nil && total > 0 {
			s.mu.Lock()
			s.limit = limitFor(s.limit, len(s.waiting) > 0, float64(now.idle-before.idle)/float64(total))
			s.changed.Broadcast()
			s.mu.Unlock()
		}
		before = now
	}
}

// limitFor returns the next limit, from the share of their time that the processors were idle, 0 to 1. A turn needs about a tenth of two
// processors, so that for each tenth that is idle there is one more. The limit grows only when a test waits: otherwise it would be no bound
// for those who come together later.
func limitFor(limit int, waiting bool, idle float64) int {
	switch {
	case idle < 0.02:
		return max(limit-1, fewestTurns)
	case idle > 0.1 && waiting:
		return min(limit+int(idle*10), mostTurns)
	default:
		return limit
	}
}

// times are those of all processors since the system started, in its clock ticks. What they gave to processes of low priority counts as idle:
// such a process, the build of the image that make test runs beside, takes little besides what tests leave over.
type times struct{ total, idle uint64 }

func processorTimes() (times, error) {
	const path = "/proc/stat"
	text, err := os.ReadFile(path)
	if err != nil {
		return times{}, err
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	return parseTimes(path, string(first))
}

// parseTimes parses a line such as "cpu  user nice system idle iowait irq softirq steal guest guest_nice".
func parseTimes(path, line string) (times, error) {
	var name string
	var n [8]uint64 // the two of guests are part of the first ones
	if _, err := fmt.Sscan(line, &name, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); err != nil || name != "cpu" {
		return times{}, errors.Join(fmt.Errorf("%s: expected cpu and eight numbers, got %q", path, line), err)
	}
	t := times{idle: n[1] + n[3] + n[4]}
	for _, ticks := range n {
		t.total += ticks
	}
	return t, nil
}

// TestLimitOfTurns: the limit follows the processors.
func TestLimitOfTurns(t *testing.T) {
	for name, c := range map[string]struct {
		limit   int
		waiting bool
		idle    float64
		want    int
	}{
		"busy":                       {12, true, 0.01, 11},
		"busy, with the fewest":      {fewestTurns, true, 0, fewestTurns},
		"nearly busy":                {12, true, 0.05, 12},
		"idle, and one waits":        {12, true, 0.15, 13},
		"mostly idle, and one waits": {12, true, 0.6, 18},
		"idle, with the most":        {mostTurns, true, 1, mostTurns},
		"idle, but none waits":       {12, false, 1, 12},
		"busy, although none waits":  {12, false, 0, 11},
	} {
		if got := limitFor(c.limit, c.waiting, c.idle); got != c.want {
			t.Errorf("%s: expected %d turns, got %d", name, c.want, got)
		}
	}
	got, err := parseTimes("stat", "cpu  10 1 5 70 4 0 1 2 3 0")
	if err != nil || got != (times{total: 93, idle: 75}) {
		t.Errorf("the times are %+v, %v", got, err)
	}
	if _, err := parseTimes("stat", "cpu0 10 1"); err == nil {
		t.Error("a line of another kind was parsed")
	}
}

// TestTurnsAreTakenInOrder: who needs most is served first, also when another one would find enough turns, and who needs more than there are
// is served alone.
func TestTurnsAreTakenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnstile(3)
		s.take(2)
		var served []string
		enter := func(name string, count int) {
			go func() { s.take(count); served = append(served, name) }()
			synctest.Wait()
		}
		expect := func(names ...string) {
			t.Helper()
			if synctest.Wait(); !slices.Equal(served, names) {
				t.Errorf("expected that %q have been served, got %q", names, served)
			}
		}
		enter("two", 2)
		enter("one", 1)
		enter("two more", 2)
		enter("five", 5)
		expect()
		s.give(1)
		expect()
		s.give(1)
		expect("five")
		s.give(5)
		expect("five", "two")
		s.give(1)
		expect("five", "two", "two more")
		s.give(1)
		expect("five", "two", "two more", "one")
		s.give(3)
	})
}
