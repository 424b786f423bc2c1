package session

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// openings notes what is opened, and knows all objects at once.
type openings struct {
	instantGrants

	calls [][]int
}

func (o *openings) Open(slots []int) { o.calls = append(o.calls, slices.Clone(slots)) }

// stepped returns a Replica of which the test runs each round of the loop: step carries out
// changes, and does the rest of the round.
func stepped(t *testing.T, c clock.WithTicker, grants Grants, tracer trace.Tracer) (r *Replica, step func(changes ...protocol.Change)) {
	t.Helper()
	registry, now := prometheus.NewRegistry(), fence.NewTime(c)
	f := fence.New("fleet-0", "fleet-0_abcde", fleetSlots, now, registry, nil)
	store := storeOn(t, newServer().Config(), f, now)
	r, err := New(complete(t,
		Config{Fence: f, Leases: store, Time: now, Metrics: NewMetrics(registry), Grants: grants, Tracer: tracer, Settings: protocol.Settings{
			Config: member.DefaultConfig(), Assignment: assignment.DefaultConfig(), Fleet: "fleet", Namespace: "fleet-system",
			Replica: "fleet-0", Session: "fleet-0_abcde", Capacity: 1, Slots: fleetSlots, ShardBy: string(assignment.ByDeployment),
			RingVersion: assignment.RingVersion,
		}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.sent.Wait)
	return r, func(changes ...protocol.Change) {
		t.Helper()
		r.carryOut(t.Context(), protocol.Output{Changes: changes})
		if _, ended, err := r.work(t.Context()); ended || err != nil {
			t.Fatalf("ended: %v", err)
		}
	}
}

// The labeler looks at all unlabeled objects for each opening: that has to be once, and not once
// for each of hundreds of slots.
func TestSlotsThatComeTogetherAreOpenedTogether(t *testing.T) {
	opened := &openings{}
	_, step := stepped(t, clock.RealClock{}, opened, nil)
	step(protocol.Change{Slot: 3, Epoch: 1, Kind: protocol.Acquired}, protocol.Change{Slot: 4, Epoch: 1, Kind: protocol.Acquired})
	step(protocol.Change{Slot: 3, Kind: protocol.Resumed},
		protocol.Change{Slot: 4, Kind: protocol.Resumed}, protocol.Change{Slot: 4, Kind: protocol.Lost})
	if diff := cmp.Diff([][]int{{3, 4}, {3}}, opened.calls); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
}

// The trace of a hand-over shows how long it waited for what was in flight, and how long for the
// release of the Lease.
func TestAHandOverIsTracedUntilNothingIsInFlight(t *testing.T) {
	c, recorder := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), tracetest.NewSpanRecorder()
	r, step := stepped(t, c, instantGrants{}, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer(""))
	step(protocol.Change{Slot: 3, Epoch: 1, Kind: protocol.Acquired})
	r.cfg.Fence.Follow(entitled{until: r.cfg.Time.Moment().Add(time.Minute), epoch: 1}, []int{3})
	_, done, ok := r.cfg.Fence.Admit(t.Context(), 3)
	if !ok {
		t.Fatal("an open slot admits no pass")
	}
	step(protocol.Change{Slot: 3, Kind: protocol.Stopped, Ticket: 1})
	c.Step(3 * time.Second)
	done()
	step()
	c.Step(time.Second)
	step(protocol.Change{Slot: 3, Kind: protocol.Lost})
	if diff := cmp.Diff([]string{"release-slot finish 3s", "release-slot write 1s", "release-slot 4s"}, endedSpans(recorder)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// entitled is an entitlement of a session that is not suspended: to begin work until a moment and,
// with an epoch, to all slots.
type entitled struct {
	until member.Moment
	epoch int64
}

func (entitled) Suspended() bool                       { return false }
func (e entitled) Fence() member.Moment                { return e.until }
func (e entitled) Entitled(int) (epoch int64, ok bool) { return e.epoch, e.epoch > 0 }

// TestASuspensionOfTheLeadershipEnds with that of the session.
func TestASuspensionOfTheLeadershipEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newServer(), "fleet-0")
		time.Sleep(time.Minute)
		synctest.Wait()
		p.fence.Suspend()
		p.fence.Follow(p.machine, nil)
		_, done, leads := p.fence.Lead(t.Context())
		if !leads {
			t.Fatal("the leader does not lead after the suspension")
		}
		done()
	})
}

func TestResignedLeaderDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		p := begin(t, server, "fleet-0")
		time.Sleep(5 * time.Second)
		synctest.Wait() // its own renewal of this second is over
		if why := p.maySend(t, member.NeedLeadership); why != "" {
			t.Fatalf("the only one does not lead: %s", why)
		}
		var during []fence.Refusal
		server.Fault(func(r apiserver.Request) error {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/fleet-leader") {
				during = append(during, p.maySend(t, member.NeedLeadership))
			}
			return nil
		})
		lock := &leaderLock{Replica: p.Replica}
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]fence.Refusal{fence.Fenced}, during); diff != "" {
			t.Errorf("requests of the leader while it resigns (-want +got):\n%s", diff)
		}
	})
}

func TestLedIsCalledWhenWorkUnderTheLeadershipMayBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		p := begin(t, server, "fleet-0")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if p.led.Load() == 0 {
			t.Error("Led was not called by the only replica")
		}
		if p.ledTooEarly.Load() {
			t.Error("Led was called while no work under the leadership could begin")
		}
	})
}

func TestAServerThatIsAwayAtTheStartIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Fault(func(apiserver.Request) error { return errors.New("away") })
		p := begin(t, server, "fleet-0")
		time.Sleep(time.Minute)
		if silence := p.cfg.Time.Moment().Since(p.Beat()); silence > 5*time.Second {
			t.Errorf("the loop has not answered for %s", silence)
		}
	})
}
