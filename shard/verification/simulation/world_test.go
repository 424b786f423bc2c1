package simulation

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// fleetName and namespace are those of all Leases.
const (
	fleetName = "fleet"
	namespace = "default"
)

// world is a fleet, its API server, and the true time.
type world struct {
	seed   uint64
	random *rand.Rand
	broken promises
	// compares is true if each step is compared with one that decides all slots.
	compares bool
	config   member.Config
	plan     assignment.Config
	slots    int

	now   time.Duration
	queue agenda
	count uint64

	api       *server
	pods      map[string]*pod
	processes []*process // all that were ever started
	faults    faults
	checker   checker

	lists *lists           // nil: slots open soon, and nothing else is listed
	story *strings.Builder // nil: no story is recorded
}

// scheduled is something to happen at an instant; what is scheduled for one instant happens in the
// order of scheduling.
type scheduled struct {
	at    time.Duration
	count uint64
	do    func()
}

type agenda []scheduled

func (a *agenda) Len() int { return len(*a) }
func (a *agenda) Less(i, j int) bool {
	x, y := (*a)[i], (*a)[j]
	return x.at < y.at || x.at == y.at && x.count < y.count
}
func (a *agenda) Swap(i, j int) { (*a)[i], (*a)[j] = (*a)[j], (*a)[i] }
func (a *agenda) Push(x any)    { *a = append(*a, x.(scheduled)) } //nolint:errcheck // nothing else is pushed
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// after schedules do.
func (w *world) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.queue, scheduled{w.now + max(d, 0), w.count, do})
}

// run lets time pass until the end, or until done returns true.
func (w *world) run(end time.Duration, done func() bool) {
	atOnce := 0
	for len(w.queue) > 0 && w.checker.violation == "" {
		next := heap.Pop(&w.queue).(scheduled) //nolint:errcheck // as above
		if atOnce++; next.at > w.now {
			atOnce = 0
		}
		if atOnce > 10000 {
			w.checker.fail("want time to pass, but steps of one instant repeat without end")
		}
		if next.at > end {
			heap.Push(&w.queue, next)
			break
		}
		w.now = next.at
		next.do()
		if done() {
			return
		}
	}
	w.now = max(w.now, end)
}

// chance returns true once in n times; never for 0.
func (w *world) chance(n int) bool { return n > 0 && w.random.IntN(n) == 0 }

// between draws a duration, short ones more often than long ones.
func (w *world) between(least, most time.Duration) time.Duration {
	f := w.random.Float64()
	return least + time.Duration(f*f*float64(most-least))
}

func (w *world) report(format string, args ...any) {
	if w.story != nil {
		fmt.Fprintf(w.story, "%9.3f  %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

// clock is the clock of a machine. Its monotonic side stands still while the machine is suspended.
type clock struct {
	rate      float64
	wall      time.Time // at the world's beginning
	suspended time.Duration
	since     time.Duration // of the present suspension
	asleep    bool
	// blind has the wall clock stand still as well.
	blind bool
}

func (c *clock) read(now time.Duration) member.Moment {
	awake := now - c.suspended
	if c.asleep {
		awake -= now - c.since
	}
	mono := time.Duration(float64(awake) * c.rate)
	wall := time.Duration(float64(now) * c.rate)
	if c.blind {
		wall = mono
	}
	return member.Moment{Monotonic: mono + time.Second, Wall: c.wall.Add(wall)}
}

func (c *clock) sleep(now time.Duration) {
	if !c.asleep {
		c.asleep, c.since = true, now
	}
}

func (c *clock) wakeUp(now time.Duration) {
	if c.asleep {
		c.asleep = false
		c.suspended += now - c.since
	}
}

// until returns how much true time passes until the monotonic clock has advanced by at least d.
func (c *clock) until(d time.Duration) time.Duration {
	return time.Duration(float64(d)/c.rate) + 2*time.Nanosecond
}
