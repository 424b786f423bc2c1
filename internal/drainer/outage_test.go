package drainer

import (
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// A drain whose time is over is given up only after requests have failed for so long that an outage
// would be known; a forced one at once.
func TestExpiredDrainIsAbandonedOnlyWithoutAnOutage(t *testing.T) {
	failed, back := errors.New("connection refused"), now.Add(30*time.Minute)
	for name, tc := range map[string]struct {
		order drain.Order
		at    []time.Duration // of failed requests
		gone  bool
	}{
		"at once":                         {order: drain.Order{Since: now}, at: []time.Duration{0}},
		"before an outage would be known": {order: drain.Order{Since: now}, at: []time.Duration{0, 59 * time.Second}},
		"when it would be known":          {order: drain.Order{Since: now}, at: []time.Duration{0, time.Minute}, gone: true},
		"the deletion is forced":          {order: drain.Order{Since: now, Force: true}, at: []time.Duration{0}, gone: true},
		"an outage has ended": {
			// the first time before it
			order: drain.Order{Since: now}.Under(reach.Fact{From: now.Add(-time.Minute), Back: back}, now), at: []time.Duration{0, 2 * time.Hour},
		},
	} {
		t.Run(name, func(t *testing.T) {
			wall := clocktesting.NewFakeClock(now)
			drainer := newDrainer(t)
			drainer.cfg.Clock, drainer.own, drainer.cfg.Confirm = wall, wall, time.Minute
			d := drainer.Of("u", ForDeletion)
			for i, at := range tc.at {
				wall.SetTime(now.Add(at))
				order := tc.order.Under(tc.order.Reach, wall.Now())
				if i == 0 {
					order.Reach = reach.Fact{}
				}
				_, _ = d.Unanswered(t.Context(), order, "m", failed)
			}
			if gone := d.state() == drain.GivenUp; gone != tc.gone {
				t.Errorf("given up: %v, want %v", gone, tc.gone)
			}
		})
	}
}

// After an outage a drain does not count since when it was blocked before. The pods that it has
// deleted without grace are named at its end.
func TestDrainForgetsAfterAnOutage(t *testing.T) {
	d, task, _ := drainBench(t, targettest.PodOn("m", "web", ""))
	blocked := map[types.UID]time.Time{"web": now.Add(-time.Hour)}
	d.memory.Forced = d.memory.Forced.With(targettest.PodOn("m", "db", ""))
	for _, step := range []struct {
		back time.Time
		kept bool
	}{{time.Time{}, true}, {now, false}, {now, true}, {now.Add(time.Minute), false}} {
		d.memory.BlockedSince = blocked
		order := task.Order.Under(reach.Fact{From: now.Add(-time.Hour), Back: step.back}, now)
		d.afterOutage(order)
		if kept := len(d.memory.BlockedSince) > 0; kept != step.kept {
			t.Errorf("back at %s: kept %v, want %v", step.back, kept, step.kept)
		}
	}
	d.memory.BlockedSince = blocked
	task.Order = task.Order.Under(reach.Fact{From: now, Back: now.Add(time.Hour)}, now)
	if _, _, err := d.Continue(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if since := d.memory.BlockedSince["web"]; since.Equal(blocked["web"]) {
		t.Error("the drain continues with what it knew before the outage")
	}
	if forced := d.memory.Forced.String(); forced != "a/db" {
		t.Errorf("deleted without grace: %q", forced)
	}
}

// The clock of the API server is set forward while a pass is under way, after what is known of the
// API servers was read. Time that has not passed ends no drain.
func TestClockThatIsSetDuringAPassEndsNoDrain(t *testing.T) {
	d, task, cluster := drainBench(t, targettest.PodOn("m", "web", ""))
	wall, _ := d.of.cfg.Clock.(*clocktesting.FakeClock)
	d.of.own = clocktesting.NewFakeClock(now)
	cluster.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		wall.Step(2 * time.Hour)
		return false, nil, nil
	})
	if v, _, err := d.Continue(t.Context(), task); err != nil || v.State != drain.Draining || v.Wake != time.Hour {
		t.Errorf("verdict %+v, error %v", v, err)
	}
	if got := targettest.Requests(cluster); slices.Contains(got, "delete pods") {
		t.Errorf("pods were deleted without grace: %q", got)
	}
	d.of.cfg.Confirm = time.Minute
	for range 2 { // requests that fail now have not failed for two hours
		wall.Step(2 * time.Hour)
		if _, _ = d.Unanswered(t.Context(), task.Order.Under(reach.Fact{}, wall.Now()), "m",
			errors.New("connection refused")); d.state() == drain.GivenUp {
			t.Fatal("the drain is given up")
		}
	}
	d.of.Forget("u")
}
