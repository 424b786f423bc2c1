package machine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// hurried admits every key, and ends one pass, before its next step, after a number of steps of
// all.
type hurried struct {
	left  atomic.Int64
	ended atomic.Bool
}

// over reports whether a pass has to end.
type over struct{}

func (over) Error() string { return "others wait" }
func (over) NotOurs() bool { return true }

func (h *hurried) Admit(ctx context.Context, _ types.NamespacedName) (context.Context, func(), bool) {
	return runner.WithMayGoOn(ctx, func() error {
		if h.left.Add(-1) == 0 {
			h.ended.Store(true)
			return over{}
		}
		return nil
	}), func() {}, true
}

func (*hurried) Group(types.NamespacedName) int { return 0 }

// The passes of a slot that is handed over end after their current step; the next holder continues
// from there.
func TestAPassMayEndBeforeEachOfItsSteps(t *testing.T) {
	steps := 0
	for ended := true; ended; steps++ {
		t.Run(fmt.Sprintf("after %d", steps), func(t *testing.T) {
			onBench(t, func(b *bench) {
				h := &hurried{}
				h.left.Store(int64(steps + 1))
				b.end()
				b.gate = h
				b.start()
				b.create()
				b.becomes(v1alpha1.MachineRunning, time.Minute)
				b.pod("web")
				b.delete()
				b.pass(2 * grace)
				if b.get() != nil || len(b.cloud.Calls(driver.OpCreate)) != 1 || b.evictions()["web"] != 1 {
					t.Errorf("%s; created %v, evicted %v", b.operation(), b.cloud.Calls(driver.OpCreate), b.evictions())
				}
				ended = h.ended.Load()
			})
		})
		if t.Failed() {
			return
		}
	}
	if steps < 10 {
		t.Errorf("the life of a machine has %d steps; expected the passes to check the gate", steps)
	}
}

// So has a drain, which is a step of many requests.
func TestADrainMayEndBeforeEachOfItsSteps(t *testing.T) {
	c, p, cluster := drainBench(t, targettest.PodOn("m", "web", ""))
	left := 2
	ctx := runner.WithMayGoOn(t.Context(), func() error {
		if left--; left < 0 {
			return over{}
		}
		return nil
	})
	if err := c.drains.forDeletion(ctx, p); !errors.Is(err, over{}) {
		t.Errorf("got %v, want the drain to end because %v", err, over{})
	}
	if got := cluster.Log(); len(got) != 2 {
		t.Errorf("requests %q, want those of two steps", got)
	}
}

// counting admits every key, and counts the passes.
type counting struct{ passes atomic.Int64 }

func (c *counting) Admit(ctx context.Context, _ types.NamespacedName) (context.Context, func(), bool) {
	c.passes.Add(1)
	return ctx, func() {}, true
}

func (*counting) Group(types.NamespacedName) int { return 0 }

// The event that a Node is gone begins no pass if the pass that has deleted the Node has ended its
// machine, although the cache still shows the machine.
func TestNoPassFollowsTheOneThatEndsAMachine(t *testing.T) {
	onBench(t, func(b *bench) {
		var late *apiserver.Backlog
		gate := &counting{}
		b.end()
		b.gate, b.rewire = gate, func(w *wires) { w.show = func(view *objectcache.View) { late = b.server.ShowLate(view) } }
		b.start()
		b.create()
		for range 2 {
			late.Show("machines", late.Len("machines"))
			b.pass(2 * bootTime)
		}
		late.Show("machines", late.Len("machines"))
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.delete()
		b.pass(time.Hour) // no timer of before is left
		gate.passes.Store(0)
		late.Show("machines", late.Len("machines"))
		b.pass(time.Minute)
		if n := gate.passes.Load(); n != 1 || b.get() != nil || late.Len("machines") == 0 {
			t.Errorf("%d passes have deleted the machine, of which the cache does not show %d changes; %s", n, late.Len("machines"), b.operation())
		}
	})
}
