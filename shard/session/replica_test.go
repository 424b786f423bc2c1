package session

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace/noop"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

const fleetSlots = 16

// process is a replica that runs.
type process struct {
	*Replica

	fence    *fence.Fence
	metrics  *Metrics
	registry *prometheus.Registry
	leave    chan struct{}
	kill     context.CancelFunc
	ended    chan error
	reported chan unowned
	unfit    chan []Trouble
	server   *server                          // if begin was given one
	received atomic.Pointer[protocol.Reports] // what was received last

	led         atomic.Int32 // how often Led was called
	ledTooEarly atomic.Bool
	leaderLease atomic.Pointer[coordinationv1.Lease] // as it was reported last
}

// receiveUnfit receives unfit replicas, and fails the first time.
func (p *process) receiveUnfit(_ context.Context, unfit []Trouble) error {
	p.unfit <- unfit
	if len(p.unfit) == 1 {
		return errors.New("not now")
	}
	return nil
}

// counted is how often a histogram has observed something.
func (p *process) counted(t *testing.T, histogram string) uint64 {
	t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == histogram {
			return family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no metric %s", histogram)
	return 0
}

// instantGrants knows all there is to know at once.
type instantGrants struct{}

func (instantGrants) Add(slots []int, ready func([]int)) { ready(slots) }
func (instantGrants) Drop([]int)                         {}
func (instantGrants) Open([]int)                         {}

func (instantGrants) Unlisted() map[int]string { return nil }

func (instantGrants) Broken() map[string]string { return nil }

// Grants returns grants that /debug/slots has to show.
func (instantGrants) Grants() [][]int { return [][]int{{1, 2}, {3}} }

// begin starts a replica; change may change its settings. It is killed when the test is over.
func begin(t *testing.T, server *server, name string, change ...func(*protocol.Settings)) *process {
	t.Helper()
	p := beginOn(t.Context(), t, server.Config(), name, change...)
	p.server = server
	return p
}

// complete returns a configuration with the functions that are missing, which do nothing.
func complete(t *testing.T, c Config) Config {
	t.Helper()
	if c.Leases == nil {
		c.Leases = storeOn(t, newServer().Config(), c.Fence, c.Time)
	}
	set(&c.Weigh, func() map[int]int64 { return nil })
	set(&c.Roots, func(int) int { return 0 })
	set(&c.Count, func() (string, bool) { return "", false })
	set(&c.Heard, func(protocol.Reports) {})
	set(&c.Accounts, func() member.Accounts { return member.Accounts{} })
	set(&c.Unowned, func(context.Context, []int) error { return nil })
	set(&c.Unfit, func(context.Context, []Trouble) error { return nil })
	set(&c.Unserved, func(member.Gap) {})
	set(&c.UnservedSlot, func(int, member.Gap) {})
	set(&c.Led, func() {})
	set(&c.LeaderLease, func(*coordinationv1.Lease) {})
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	return c
}

// set sets a function that is missing.
func set[F any](f *F, none F) {
	if reflect.ValueOf(f).Elem().IsZero() {
		*f = none
	}
}

// beginOn starts a replica under a context, with its own way to the API server.
func beginOn(ctx context.Context, t *testing.T, way *rest.Config, name string, change ...func(*protocol.Settings)) *process {
	t.Helper()
	return beginWith(ctx, t, way, name, instantGrants{}, change...)
}

// beginWith starts a replica that sees objects by its own grants.
func beginWith(
	ctx context.Context, t *testing.T, way *rest.Config, name string, grants Grants, change ...func(*protocol.Settings),
) *process {
	t.Helper()
	settings := protocol.Settings{
		Config: member.DefaultConfig(), Assignment: assignment.DefaultConfig(), Fleet: "fleet", Namespace: "fleet-system",
		Replica: name, Session: member.Identity(name, "abcde"), Capacity: 1, Slots: fleetSlots,
		ShardBy: string(assignment.ByDeployment), RingVersion: assignment.RingVersion,
	}
	for _, f := range change {
		f(&settings)
	}
	registry := prometheus.NewRegistry()
	now, metrics := fence.NewTime(clock.RealClock{}), NewMetrics(registry)
	p := &process{
		fence: fence.New(name, settings.Session, settings.Slots, now, registry, nil), metrics: metrics, registry: registry,
		leave: make(chan struct{}), ended: make(chan error, 1), reported: make(chan unowned, 16), unfit: make(chan []Trouble, 16),
	}
	var err error
	p.Replica, err = New(complete(t, Config{
		Settings: settings, Leases: storeOn(t, way, p.fence, now), Fence: p.fence, Time: now, Grants: grants, Metrics: metrics,
		Unowned: p.receive, Unfit: p.receiveUnfit,
		Weigh: func() map[int]int64 {
			weights := map[int]int64{}
			for slot := range settings.Slots {
				weights[slot] = 5
			}
			return weights
		},
		Roots: func(int) int { return 3 },
		Count: func() (string, bool) { return "counted by " + name, len(p.open()) > 0 },
		Heard: func(reported protocol.Reports) { p.received.Store(&reported) },
		Led: func() {
			p.led.Add(1)
			_, done, ok := p.fence.Lead(context.Background())
			if ok {
				done()
			}
			p.ledTooEarly.Store(p.ledTooEarly.Load() || !ok)
		},
		LeaderLease: func(lease *coordinationv1.Lease) { p.leaderLease.Store(lease) },
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, p.kill = context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		p.ended <- p.Run(ctx, p.leave)
		close(ended)
	}()
	t.Cleanup(func() {
		p.kill()
		<-ended
	})
	return p
}

// open are the slots of which a replica takes keys.
func (p *process) open() []int {
	var open []int
	for slot := range p.cfg.Settings.Slots {
		_, done, ok := p.fence.Admit(context.Background(), slot)
		if ok {
			done()
			open = append(open, slot)
		}
	}
	return open
}

// wantAll checks, now and then for a time, that no slot is open twice, and at its end that each is
// open once.
func wantAll(t *testing.T, within time.Duration, processes ...*process) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < within; time.Sleep(50 * time.Millisecond) {
		wantOnce(t, processes...)
	}
	if n := wantOnce(t, processes...); n != fleetSlots {
		t.Fatalf("%d slots are open after %s, want all %d", n, within, fleetSlots)
	}
}

func wantOnce(t *testing.T, processes ...*process) int {
	t.Helper()
	synctest.Wait() // in the middle of a hand-over one could be asked before it, and the other after it
	by := map[int]string{}
	for _, p := range processes {
		for _, slot := range p.open() {
			if other, taken := by[slot]; taken {
				t.Fatalf("slot %d is open at %s and at %s", slot, other, p.cfg.Settings.Replica)
			}
			by[slot] = p.cfg.Settings.Replica
		}
	}
	return len(by)
}

func TestAFreshFleetHoldsAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		if h, err := a.Health(t.Context()); err != nil || h.Suspended || !h.Fitness.IsFit() || len(h.Waiting) > 0 || h.Held != fleetSlots ||
			!h.Leads {
			t.Errorf("it holds all and has the health %+v, %v", h, err)
		}
		time.Sleep(2 * time.Second)
		if owned, leads := testutil.ToFloat64(a.metrics.owned), testutil.ToFloat64(a.metrics.leads); owned != fleetSlots || leads != 1 {
			t.Errorf("metrics: %v slots owned, leader %v", owned, leads)
		}
	})
}

func TestANewReplicaGetsItsShareAndHandsItOverWhenItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		server.Fault(func(r apiserver.Request) error {
			if r.Method == http.MethodPut {
				time.Sleep(time.Millisecond) // or slots are free before the newcomer's first list, and seen without a former holder
			}
			return nil
		})
		b := begin(t, server, "fleet-1")
		wantAll(t, 3*time.Minute, a, b)
		if n := len(b.open()); n < fleetSlots/4 {
			t.Errorf("the newcomer has %d of %d slots", n, fleetSlots)
		}
		if moved, want := b.counted(t, "mcf_hand_over_seconds"), uint64(len(b.open())); moved != want {
			t.Errorf("%d hand-overs were measured, want %d", moved, want)
		}
		close(a.leave)
		select {
		case err := <-a.ended:
			if err != nil {
				t.Errorf("it was asked to leave, and ended with: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it was asked to leave, and has not after 30 s")
		}
		wantAll(t, 25*time.Second, b)
		if holder := member.Holder(server.Leases()["fleet-session-fleet-0"]); holder != "" {
			t.Errorf("the session Lease of the leaver is held by %q", holder)
		}
	})
}

// What a replica has counted reaches the others within seconds, and stays its last word when it has
// left.
func TestReplicasReceiveReportsOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		want := map[string]string{"fleet-0": "counted by fleet-0", "fleet-1": "counted by fleet-1"}
		reports := func(p *process, holders ...string) {
			t.Helper()
			reported := p.received.Load()
			if reported == nil || !maps.Equal(reported.Counts, want) {
				t.Fatalf("received %+v, want %v", reported, want)
			}
			for slot, holder := range reported.Holders {
				if !slices.Contains(holders, holder) {
					t.Errorf("slot %d is held by %q, want one of %v", slot, holder, holders)
				}
			}
		}
		reports(a, "fleet-0", "fleet-1")
		reports(b, "fleet-0", "fleet-1")
		close(a.leave)
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		reports(b, "fleet-1")
	})
}

func TestALeavingSessionWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		slot := a.open()[0]
		ctx, done, ok := a.fence.Admit(t.Context(), slot)
		if !ok {
			t.Fatal("an open slot admits no pass")
		}
		close(a.leave)
		time.Sleep(20 * time.Second)
		if open := b.open(); len(open) != fleetSlots-1 || ctx.Err() != nil {
			t.Errorf("%d slots were handed over while one has work in flight; the work ended: %v", len(open), ctx.Err())
		}
		done()
		time.Sleep(time.Second)
		if n := len(b.open()); n != fleetSlots {
			t.Errorf("%d slots were handed over when nothing was in flight any more, want all", n)
		}
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheSlotsOfADeadReplicaAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		mine := len(a.open())
		cut(server, "fleet-0")
		begun := time.Now()
		for len(b.open()) < fleetSlots && time.Since(begun) < time.Minute {
			time.Sleep(50 * time.Millisecond)
			wantOnce(t, a, b)
		}
		if took := time.Since(begun); took > 22*time.Second {
			t.Errorf("the take-over took %s", took)
		}
		if n := len(a.open()); n > 0 {
			t.Errorf("the dead replica has %d open slots", n)
		}
		if taken := b.counted(t, "mcf_take_over_seconds"); taken != uint64(mine) {
			t.Errorf("%d take-overs were measured, want %d", taken, mine)
		}
		server.Fault(nil)
		err := <-a.ended
		if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Reason != protocol.ReasonLost {
			t.Errorf("the replica whose session Lease was taken ended with: %v", err)
		}
	})
}

func TestAbsentServerDeclaresNoSessionDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		taken := a.counted(t, "mcf_take_over_seconds") + b.counted(t, "mcf_take_over_seconds")
		ctx, done, ok := a.fence.Admit(t.Context(), a.open()[0])
		if !ok {
			t.Fatal("an open slot admits no pass")
		}
		server.Away(true)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the fence has passed and a pass has not been cancelled")
		}
		done()
		time.Sleep(50 * time.Second)
		if n := len(a.open()) + len(b.open()); n > 0 {
			t.Errorf("%d slots are open after the fence", n)
		}
		server.Away(false)
		wantAll(t, 30*time.Second, a, b)
		if len(a.ended) > 0 || len(b.ended) > 0 {
			t.Error("a session has ended")
		}
		if n := a.counted(t, "mcf_take_over_seconds") + b.counted(t, "mcf_take_over_seconds"); n != taken {
			t.Errorf("%d slots were taken over", n-taken)
		}
		if n := testutil.ToFloat64(a.metrics.suspensions); n != 1 {
			t.Errorf("%v suspensions counted, want 1", n)
		}
	})
}

// wantLeaderless checks, now and then for a time, that replicas have the same slots open as before,
// and that after the fence of the last leader none of them leads.
func wantLeaderless(t *testing.T, within time.Duration, before map[*process][]int) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < within; time.Sleep(50 * time.Millisecond) {
		for p, slots := range before {
			if open := p.open(); !slices.Equal(open, slots) {
				t.Fatalf("%s had the slots %v open, and has %v after %s", p.cfg.Settings.Replica, slots, open, time.Since(begun))
			}
			if why := p.maySend(t, member.NeedLeadership); why == "" && time.Since(begun) > member.DefaultConfig().Fence {
				t.Fatalf("%s leads after %s", p.cfg.Settings.Replica, time.Since(begun))
			}
		}
	}
}

func TestWithoutALeaderHoldersContinueAndALeavingSessionReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		ofA, ofB := a.open(), b.open()
		server.Fault(noLeader)
		wantLeaderless(t, time.Minute, map[*process][]int{a: ofA, b: ofB})

		begun := time.Now()
		close(b.leave)
		if err := <-b.ended; err != nil {
			t.Errorf("it was asked to leave, and ended with: %v", err)
		}
		if took := time.Since(begun); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("it left after %s, want it to wait 5 s for a leader and no longer", took)
		}
		for _, slot := range ofB {
			lease := server.Leases()[member.SlotLeaseName("fleet", slot, fleetSlots)]
			if holder := member.Holder(lease); holder != "" {
				t.Errorf("slot %d of the leaver is held by %q", slot, holder)
			}
		}
		wantLeaderless(t, time.Minute, map[*process][]int{a: ofA})
		if unowned := testutil.ToFloat64(a.metrics.unowned); unowned != float64(len(ofB)) || len(a.reported) > 0 {
			t.Errorf("%v slots show as unowned, want %d; %d reports, which only a leader writes", unowned, len(ofB), len(a.reported))
		}
		server.Fault(nil)
		wantAll(t, 30*time.Second, a)
	})
}

func TestWithoutALeaderNoSlotOfADeadSessionIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		dead := unreachableFor("fleet-1")
		server.Fault(func(r apiserver.Request) error { return errors.Join(noLeader(r), dead(r)) })
		wantLeaderless(t, time.Minute, map[*process][]int{a: a.open()})
		if open := b.open(); len(open) > 0 {
			t.Errorf("a replica that cannot renew has the slots %v open", open)
		}
		server.Fault(dead)
		wantAll(t, 30*time.Second, a)
	})
}

func TestOtherSettingsThanTheFleetsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		for name, change := range map[string]func(*protocol.Settings){
			"slots":              func(s *protocol.Settings) { s.Slots = 2 * fleetSlots },
			"shard-by":           func(s *protocol.Settings) { s.ShardBy = string(assignment.ByNamespace) },
			"the ring's version": func(s *protocol.Settings) { s.RingVersion = "0" },
			"--lease-fence":      func(s *protocol.Settings) { s.Config.Fence = 10 * time.Second },
			"--lease-take-over":  func(s *protocol.Settings) { s.Config.TakeOver = 20 * time.Second },
		} {
			b := begin(t, server, "fleet-1", change)
			err := <-b.ended
			exit, ok := errors.AsType[*ExitError](err)
			if !ok || exit.Reason != protocol.ReasonMismatch || !strings.Contains(exit.Message, name) {
				t.Errorf("other %s: ended with %v", name, err)
			}
		}
	})
}
