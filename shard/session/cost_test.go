package session

import (
	"container/heap"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

var costs = flag.Bool("cost", false,
	"measure what the loop of a session costs in fleets of all sizes, and print the table of docs/benchmarks.md")

// What the loop of a session may cost.
const (
	mostAtRest = 0.05
	mostDelay  = 100 * time.Millisecond
)

// TestCost runs whole fleets in virtual time, and measures the CPU time of the loops that renew the
// sessions: the steps of the real machine with its Fence, metrics and measurements of arrivals. A
// loop is busy for the CPU time that it takes, and what comes meanwhile waits. The API server
// answers in 5 ms. Not included are encoding and sending, the watch's decoding, the objects of
// slots, and what Config.Weigh, Count and Heard do.
func TestCost(t *testing.T) {
	runtime.LockOSThread() // its CPU time is measured
	defer runtime.UnlockOSThread()
	slots, replicas := []int{64}, []int{3}
	if *costs {
		slots, replicas = []int{256, 1024, 4096}, []int{3, 10, 32}
		fmt.Fprintln(os.Stdout, "| slots | replicas | leader at rest | follower at rest | installation: "+
			"CPU | longest step | renewal late by | take-over: CPU | longest step | renewal late by | session Lease | report |")
		fmt.Fprintln(os.Stdout, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	}
	for _, s := range slots {
		for _, r := range replicas {
			f := newCosts(t, s, r)
			f.install()
			install := f.measure()
			f.run(90 * time.Second) // until nothing is planned any more
			f.measure()
			f.run(time.Minute)
			rest := f.measure()
			f.takeOver()
			takeOver := f.measure()
			if !*costs {
				continue
			}
			share := func(cpu time.Duration) float64 { return cpu.Seconds() / 60 }
			fmt.Fprintf(os.Stdout, "| %d | %d | %.2f %% | %.2f %% | %s | %s | %s | %s | %s | %s | %d kB | %d kB |\n",
				s, r, 100*share(rest.leader), 100*share(rest.follower),
				millis(install.most()), millis(install.step), millis(install.late), millis(takeOver.most()), millis(takeOver.step),
				millis(takeOver.late), f.largest/1000, f.reports/1000)
			if share(rest.most()) > mostAtRest {
				t.Errorf("%d slots, %d replicas: at rest the loop takes %.1f %% of a core, want at most %.0f %%",
					s, r, 100*share(rest.most()), 100*mostAtRest)
			}
			if late := max(install.late, rest.late, takeOver.late); late > mostDelay {
				t.Errorf("%d slots, %d replicas: a renewal is late by %v, want at most %v", s, r, late, mostDelay)
			}
		}
	}
}

func millis(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) + " ms" }

// cost contains the costs of loops for a time: their CPU, of the busiest follower, their longest
// step, and by how much a renewal was sent later than it was due.
type cost struct{ leader, follower, step, late time.Duration }

func (c cost) most() time.Duration { return max(c.leader, c.follower) }

// costFleet is a fleet in virtual time.
type costFleet struct {
	testing.TB

	slots    int
	now      time.Duration
	queue    costQueue
	count    int
	leases   map[string]*coordinationv1.Lease
	version  int
	replicas []*costReplica
	// largest and reports are the largest session Lease and the largest report, in bytes.
	largest, reports int
	// tracked, if set, adds to a Lease what the API server records of its writers; stored is nil for a
	// new one.
	tracked func(stored, l *coordinationv1.Lease) *coordinationv1.Lease
	// weigh returns what a replica reports; by default weights that change each time, and as many
	// counts as it may write.
	weigh func(*costReplica) (weights map[int]int64, counts string)
}

const (
	costAnswer = 5 * time.Millisecond
	costLag    = 3 * time.Millisecond
	costStart  = time.Second
)

func newCosts(tb testing.TB, slots, replicas int) *costFleet {
	tb.Helper()
	f := &costFleet{TB: tb, slots: slots, leases: map[string]*coordinationv1.Lease{}, version: 100, now: costStart, weigh: mostWeights}
	for n := range replicas {
		f.replicas = append(f.replicas, f.newReplica(n))
	}
	f.write(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fleet-leader", Annotations: protocol.Record(f.replicas[0].settings)}})
	var renew func()
	renew = func() {
		f.write(f.leases["fleet-leader"].DeepCopy())
		f.after(time.Second, renew)
	}
	f.after(time.Second, renew)
	return f
}

// mostWeights returns weights and counts that change each time, the counts as large as they may be.
func mostWeights(r *costReplica) (weights map[int]int64, counts string) {
	weights = map[int]int64{}
	for slot := range r.f.slots {
		weights[slot] = 100 + int64((slot+r.round)%3)
	}
	return weights, strings.Repeat(strconv.Itoa(r.round%10), 16<<10)
}

// install runs until all slots have an owner.
func (f *costFleet) install() {
	for _, r := range f.replicas {
		r.begin()
	}
	f.until(5*time.Minute, func() bool { return f.owned() == f.slots })
}

// takeOver kills the last replica, and runs until others have its slots.
func (f *costFleet) takeOver() {
	f.replicas[len(f.replicas)-1].gone = true
	f.until(5*time.Minute, func() bool { return f.owned() == f.slots })
}

func (f *costFleet) until(most time.Duration, done func() bool) {
	f.Helper()
	for end := f.now + most; !done(); {
		if f.now > end {
			f.Fatalf("%d of %d slots have an owner after %v", f.owned(), f.slots, most)
		}
		f.run(time.Second)
	}
}

// owned counts the slots that a replica may act on which is not gone.
func (f *costFleet) owned() (n int) {
	for _, r := range f.replicas {
		for slot := range f.slots {
			if _, ok := r.machine.Entitled(slot); ok && !r.gone {
				n++
			}
		}
	}
	return n
}

// measure returns what has been measured since it was last called.
func (f *costFleet) measure() (c cost) {
	for n, r := range f.replicas {
		if n == 0 {
			c.leader = r.cpu
		} else {
			c.follower = max(c.follower, r.cpu)
		}
		c.step, c.late = max(c.step, r.longest), max(c.late, r.late)
		r.cpu, r.longest, r.late = 0, 0, 0
	}
	return c
}

func (f *costFleet) moment(at time.Duration) member.Moment {
	return member.Moment{Monotonic: at, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(at)}
}

type costErrand struct {
	at    time.Duration
	count int
	do    func()
}

type costQueue []costErrand

func (q *costQueue) Len() int { return len(*q) }
func (q *costQueue) Less(i, j int) bool {
	x, y := (*q)[i], (*q)[j]
	return x.at < y.at || x.at == y.at && x.count < y.count
}
func (q *costQueue) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *costQueue) Push(x any)    { *q = append(*q, x.(costErrand)) } //nolint:errcheck // nothing else is pushed
func (q *costQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func (f *costFleet) after(d time.Duration, do func()) {
	f.count++
	heap.Push(&f.queue, costErrand{f.now + d, f.count, do})
}

func (f *costFleet) run(d time.Duration) {
	for end := f.now + d; f.now < end; {
		if f.queue[0].at > end {
			f.now = end
			return
		}
		next := heap.Pop(&f.queue).(costErrand) //nolint:errcheck // as above
		f.now = max(f.now, next.at)
		next.do()
	}
}

// write stores a version of a Lease, and has the watches show it.
func (f *costFleet) write(l *coordinationv1.Lease) *coordinationv1.Lease {
	f.version++
	if f.tracked != nil {
		l = f.tracked(f.leases[l.Name], l)
	}
	l.ResourceVersion = strconv.Itoa(f.version)
	if l.UID == "" {
		l.UID = types.UID(fmt.Sprintf("01234567-89ab-cdef-0123-%012d", f.version))
	}
	f.leases[l.Name] = l
	switch l.Labels[v1alpha1.LabelLease] {
	case v1alpha1.LeaseOfSession:
		f.largest = max(f.largest, l.Size())
	case v1alpha1.LeaseOfReport:
		f.reports = max(f.reports, l.Size())
	}
	for _, r := range f.replicas {
		if r.watches {
			f.after(costLag, func() { r.get(protocol.Seen{Lease: l}) })
		}
	}
	return l
}

// serve carries out a request.
func (f *costFleet) serve(req member.Request) (reply member.Reply) {
	reply = member.Reply{ID: req.ID, Outcome: member.Done}
	stored := f.leases[req.Name]
	switch {
	case req.Verb == member.List:
		reply.Leases = f.all()
	case req.Verb == member.Create && stored != nil:
		reply.Outcome = member.Exists
	case req.Verb == member.Create:
		reply.Lease = f.write(req.Lease.DeepCopy())
	case stored == nil:
		reply.Outcome = member.NotFound
	case req.Verb == member.Get:
		reply.Lease = stored
	case stored.ResourceVersion != req.Lease.ResourceVersion:
		reply.Outcome = member.Conflict
	default:
		reply.Lease = f.write(req.Lease.DeepCopy())
	}
	return reply
}

func (f *costFleet) all() []*coordinationv1.Lease {
	var leases []*coordinationv1.Lease
	for _, name := range slices.Sorted(maps.Keys(f.leases)) {
		leases = append(leases, f.leases[name])
	}
	return leases
}

// costReplica is a replica with what its loop calls.
type costReplica struct {
	f        *costFleet
	settings protocol.Settings
	machine  *protocol.Session
	fence    *fence.Fence
	metrics  *Metrics
	arrival  *arrivals
	service  *service
	outages  outages[int]

	watches, gone, elected bool
	busy                   time.Duration // until when its loop is
	woken                  int           // of which time it is woken that counts
	renewed                time.Duration // when the last renewal was due
	round                  int

	cpu, longest, late time.Duration
}

func (f *costFleet) newReplica(n int) *costReplica {
	name := fmt.Sprintf("machine-controller-fleet-%d", n)
	s := protocol.Settings{
		Config: member.DefaultConfig(), Assignment: assignment.DefaultConfig(), Fleet: "fleet", Namespace: "fleet-system",
		Replica: name, Session: member.Identity(name, "abcde"), Capacity: 1, Slots: f.slots, ShardBy: string(assignment.ByDeployment),
		RingVersion: assignment.RingVersion,
	}
	machine, err := protocol.NewSession(s)
	if err != nil {
		f.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, h := NewMetrics(registry), newHolders(s, member.Moment{})
	return &costReplica{
		f: f, settings: s, machine: machine, fence: fence.New(name, s.Session, s.Slots, fence.NewTime(clock.RealClock{}), registry, nil),
		metrics: m, arrival: newArrivals(s, noop.NewTracerProvider().Tracer(""), m, h), service: &service{metrics: m, holders: h},
		outages: outages[int]{},
	}
}

// begin starts the session and what happens from time to time.
func (r *costReplica) begin() {
	r.watches = true
	r.get(protocol.Listed{Leases: r.f.all()})
	var tick, weigh func()
	tick = func() {
		r.loop(func(now member.Moment) {
			facts := r.machine.Facts(now)
			r.metrics.observe(&facts, r.fence.Busy())
			lateOf(r.outages, now, longUnowned, unownedAmong(facts.Slots))
			r.machine.Reports()
			r.service.observe(now, facts.Observing)
		})
		r.get(protocol.Woke{})
		if r == r.f.replicas[0] && !r.elected && !r.machine.Suspended() {
			r.elected = true
			r.get(protocol.Elected{})
		}
		r.f.after(time.Second, tick)
	}
	weigh = func() {
		r.round++
		weights, counts := r.f.weigh(r)
		r.get(protocol.Weighed{Weights: weights, Counts: &counts})
		r.f.after(10*time.Second, weigh)
	}
	r.f.after(time.Second, tick)
	r.f.after(2*time.Second, weigh)
}

// get has the loop take in an event, when it has taken in what came before.
func (r *costReplica) get(event protocol.Event) {
	if r.gone {
		return
	}
	var out protocol.Output
	at := r.loop(func(now member.Moment) {
		if seen, ok := event.(protocol.Seen); ok {
			r.service.holders.seen(seen.Lease, now)
			r.arrival.seen(seen.Lease, now)
		}
		out = r.machine.Step(now, event)
		r.fence.Follow(r.machine, out.Slots)
	})
	if out.Exit != nil {
		r.f.Fatalf("%s exits: %s", r.settings.Replica, out.Exit.Message)
	}
	r.f.after(r.busy-r.f.now, func() { r.carryOut(at, out) })
}

// carryOut answers the changes, sends the requests, and has the loop woken.
func (r *costReplica) carryOut(at time.Duration, out protocol.Output) {
	for _, change := range out.Changes {
		if change.Kind == protocol.Acquired {
			r.get(protocol.Opened{Slot: change.Slot, Epoch: change.Epoch})
		}
		if change.Ticket != 0 {
			r.get(protocol.Idle{Slot: change.Slot, Ticket: change.Ticket})
		}
	}
	for _, req := range out.Requests {
		if member.Holder(req.Lease) == r.settings.Session && req.Lease.Labels[v1alpha1.LabelLease] == v1alpha1.LeaseOfSession {
			if due := r.renewed + r.settings.Config.RenewEvery; r.renewed > 0 {
				r.late = max(r.late, r.f.now-due)
			}
			r.renewed = at
		}
		sent := r.f.moment(r.f.now)
		r.f.after(costAnswer/2, func() {
			reply := r.f.serve(req)
			reply.Sent = sent
			r.f.after(costAnswer/2, func() { r.get(protocol.Replied{Reply: reply}) })
		})
	}
	r.woken++
	if woken := r.woken; !out.WakeAt.IsZero() {
		r.f.after(max(out.WakeAt.Monotonic-r.f.now, 0), func() {
			if woken == r.woken {
				r.get(protocol.Woke{})
			}
		})
	}
}

// loop does something in the loop, and returns when it began. The loop is busy for the CPU time
// that it has taken.
func (r *costReplica) loop(do func(now member.Moment)) (at time.Duration) {
	if r.gone {
		return 0
	}
	at = max(r.f.now, r.busy)
	begun := threadTime()
	do(r.f.moment(at))
	took := threadTime() - begun
	r.busy, r.cpu, r.longest = at+took, r.cpu+took, max(r.longest, took)
	return at
}

// threadTime is the CPU time of the test's thread: what else runs on the machine does not count.
func threadTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) // it is there on every Linux
	return time.Duration(now.Nano())
}
