package simulation

import (
	"flag"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

var compareAll = flag.Bool("compare", false, "compare each step with one that decides all slots, in all tests")

// comparing makes all sessions be compared with sessions that decide all slots.
func comparing(w *world, _ *faults) { w.compares = true }

// decidesAll returns the session to compare with; nil if nothing is compared.
func (w *world) decidesAll(settings protocol.Settings) *protocol.Session {
	if !w.compares && !*compareAll {
		return nil
	}
	all, err := protocol.NewSession(settings)
	if err != nil {
		w.checker.fail("settings: %v", err)
		return nil
	}
	all.DecideAll()
	return all
}

// compare checks that a step that decides only the touched slots requests the same as one that
// decides all slots.
func (p *process) compare(now member.Moment, event protocol.Event, out protocol.Output) {
	if p.all == nil || p.w.checker.violation != "" {
		return
	}
	want := p.all.Step(now, event)
	want.Slots, out.Slots = nil, nil
	if want.WakeAt.Since(out.WakeAt).Abs() < time.Microsecond { // the distance between the clocks is not exact
		want.WakeAt = out.WakeAt
	}
	if diff := cmp.Diff(want, out); diff != "" {
		p.w.checker.fail("%s, after %T: want no output for slots that were not touched (-all slots decided, +touched ones):\n%s",
			p.session, event, diff)
	}
}

// TestUntouchedSlotsNeedNoDecision checks that, in any history, each step requests the same as one
// that decides all slots.
func TestUntouchedSlotsNeedNoDecision(t *testing.T) {
	if *oneSeed >= 0 {
		reportStory(t, uint64(*oneSeed), comparing)
		return
	}
	t.Logf("%+v", runAll(t, worlds.Some(*howMany/10), comparing))
}
