package shard

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases/leasetest"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
)

// machineOf returns the state machine of a session that has not begun, and so is suspended.
func machineOf(t *testing.T) *protocol.Session {
	t.Helper()
	machine, err := protocol.NewSession(protocol.Settings{
		Config: member.DefaultConfig(), Assignment: assignment.DefaultConfig(), Fleet: "fleet", Namespace: "fleet-system",
		Replica: "fleet-0", Session: "fleet-0_abcde", Capacity: 1, Slots: 16, ShardBy: string(ring.Deployment), RingVersion: ring.Version,
	})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// TestASuspensionStopsEverything: passes end, and the renewal of the fence alone admits none again.
func TestASuspensionStopsEverything(t *testing.T) {
	s := newStand(t)
	until := s.Until()
	s.lead()
	s.leadership.letIn(1, s.time.Now())
	s.leaderUntil.Store(&until)
	ctx, done := s.own(t)
	defer done()
	leading, end, ok := s.Lead(t.Context())
	if !ok {
		t.Fatal("the leader may not lead")
	}
	defer end()
	s.suspend()
	s.turnedAway.Store(true)
	if s.follow(machineOf(t), nil) {
		t.Error("keys are let in again during a suspension")
	}
	if !s.turnedAway.Load() {
		t.Error("the suspension has forgotten that a key was turned away")
	}
	for name, ctx := range map[string]context.Context{"a slot": ctx, "the leadership": leading} {
		refused, ok := errors.AsType[*RefusedError](context.Cause(ctx))
		if !ok || refused.Why != Fenced {
			t.Errorf("a pass of %s ends because of %v, want a refusal because it is fenced", name, context.Cause(ctx))
		}
		wantRefused(t, "the next step of a pass of "+name, runner.MayGoOn(ctx), Stopping)
	}
	s.renew(9 * time.Second)
	if s.Holds(testSlot) {
		t.Error("the slot is open before it is resumed")
	}
}

// TestASuspensionOfTheLeadershipEnds with that of the session.
func TestASuspensionOfTheLeadershipEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, leasetest.NewServer(), "fleet-0")
		time.Sleep(time.Minute)
		synctest.Wait()
		p.fence.suspend()
		p.fence.follow(p.machine, nil)
		_, done, leads := p.fence.Lead(t.Context())
		if !leads {
			t.Fatal("the leader does not lead after the suspension")
		}
		done()
	})
}

// TestNothingIsOwnedAfterTheEnd of a session, even if its fence moved on.
func TestNothingIsOwnedAfterTheEnd(t *testing.T) {
	s := newStand(t)
	ctx, done := s.own(t)
	defer done()
	s.close()
	if s.Acts() {
		t.Error("it acts")
	}
	s.renew(9 * time.Second)
	_, err := s.send(ctx, t, http.MethodPatch) //nolint:bodyclose // there is none
	wantRefused(t, "after the end", err, Lost)
}

// TestAPassEndsWithItsOwnership: each of several, and none is kept when it has ended.
func TestAPassEndsWithItsOwnership(t *testing.T) {
	s := newStand(t)
	h := s.slots[testSlot]
	first, endFirst := s.own(t)
	second, endSecond := s.own(t)
	for epoch, want := range map[int64]Refusal{2: Lost, 3: ""} {
		if got := h.mayGoOn(epoch); got != want {
			t.Errorf("a pass under epoch %d is %q, want %q", epoch, got, want)
		}
	}
	h.set(0, false)
	if got := h.mayGoOn(3); got != Lost {
		t.Errorf("a pass under a slot that is lost is %q", got)
	}
	if first.Err() == nil || second.Err() == nil {
		t.Error("the context of a pass has not ended")
	}
	if s.Holds(testSlot) {
		t.Error("a slot that is lost is open")
	}
	endFirst()
	endSecond()
	if len(h.passes) != 0 {
		t.Errorf("%d passes are kept that have ended", len(h.passes))
	}
}

// TestAStopEndsWithTheEpoch, and not when the slot is doubted and confirmed under the same epoch.
func TestAStopEndsWithTheEpoch(t *testing.T) {
	s := newStand(t)
	h := s.slots[testSlot]
	h.stop()
	h.set(0, false)
	h.set(3, true)
	if s.Holds(testSlot) {
		t.Error("it is open under the same epoch")
	}
	h.set(4, true)
	h.letIn(4, s.time.Now())
	if !s.Holds(testSlot) {
		t.Error("it is shut under the next epoch")
	}
}

// TestTheFirstPassAfterAnOpeningIsMeasured, and no other.
func TestTheFirstPassAfterAnOpeningIsMeasured(t *testing.T) {
	s := newStand(t)
	h := s.slots[testSlot]
	wants := func(when string, opened, served time.Time) {
		t.Helper()
		if got := h.view(testSlot); !got.Opened.Equal(opened) || !got.Served.Equal(served) {
			t.Errorf("%s: opened %v and served %v, want %v and %v", when, got.Opened, got.Served, opened, served)
		}
	}
	begun := s.clock.Now()
	wants("opened", begun, time.Time{})
	for range 2 {
		s.clock.Step(time.Second)
		_, done := s.own(t)
		done()
		wants("served", begun, begun.Add(time.Second))
	}
	h.letIn(3, s.clock.Now())
	wants("opened again", begun.Add(2*time.Second), time.Time{})
	_, done := s.own(t)
	done()
	h.shut()
	wants("shut", time.Time{}, time.Time{})
}

// parent is a context that counts the contexts that wait for its end.
type parent struct {
	context.Context //nolint:containedctx // it stands in for one

	waiting int
}

func (*parent) Done() <-chan struct{} { return make(chan struct{}) }

func (p *parent) AfterFunc(func()) func() bool {
	p.waiting++
	return func() bool { p.waiting--; return true }
}

// TestNoContextIsKept of a pass that has ended, and of one that was not admitted.
func TestNoContextIsKept(t *testing.T) {
	s := newStand(t)
	p := &parent{Context: t.Context()}
	ctx, done, ok := s.Admit(p, testSlot)
	if !ok || p.waiting != 1 {
		t.Fatalf("admitted: %t, and %d contexts wait for the end of their parent", ok, p.waiting)
	}
	done()
	if ctx.Err() == nil || p.waiting != 0 {
		t.Errorf("the context of a pass that has ended: %v, and %d wait for the end of their parent", ctx.Err(), p.waiting)
	}
	s.slots[testSlot].shut()
	if _, _, ok = s.Admit(p, testSlot); ok || p.waiting != 0 {
		t.Errorf("a slot is shut: admitted: %t, and %d contexts wait for the end of their parent", ok, p.waiting)
	}
}
