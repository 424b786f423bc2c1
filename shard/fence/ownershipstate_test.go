package fence

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// entitled records what the protocol permits a session: to begin work until a moment, and one slot
// under an epoch; none when it is suspended.
type entitled struct {
	until member.Moment
	slot  int
	epoch int64
}

func (e entitled) Suspended() bool      { return e.until.IsZero() }
func (e entitled) Fence() member.Moment { return e.until }

func (e entitled) Entitled(slot int) (epoch int64, ok bool) {
	if slot != e.slot || e.Suspended() {
		return 0, false
	}
	return e.epoch, true
}

// TestASuspensionStopsEverything: passes end, and the renewal of the fence alone admits none again.
func TestASuspensionStopsEverything(t *testing.T) {
	s := newStand(t)
	until := s.Until()
	s.BeginLeading()
	s.MoveLeaderFence(until)
	ctx, done := s.own(t)
	defer done()
	leading, end, ok := s.Lead(t.Context())
	if !ok {
		t.Fatal("the leader may not lead")
	}
	defer end()
	s.Suspend()
	s.Follow(entitled{}, nil)
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

// TestASuspensionOfTheLeadershipEndsWithThatOfTheSession.
func TestASuspensionOfTheLeadershipEndsWithThatOfTheSession(t *testing.T) {
	s := newStand(t)
	s.BeginLeading()
	s.MoveLeaderFence(s.Until())
	until := s.Until()
	s.Suspend()
	s.Follow(entitled{}, nil)
	if _, _, leads := s.Lead(t.Context()); leads {
		t.Error("the leader leads in a suspension")
	}
	s.Follow(entitled{until: until}, nil)
	_, done, leads := s.Lead(t.Context())
	if !leads {
		t.Fatal("the leader does not lead after the suspension")
	}
	done()
}

// TestFollowSetsOnlyTheListedSlots, and no others.
func TestFollowSetsOnlyTheListedSlots(t *testing.T) {
	s := newStand(t)
	_, done := s.own(t)
	defer done()
	s.Follow(entitled{until: s.Until()}, nil)
	if !s.Holds(testSlot) {
		t.Error("a slot is lost that was not given")
	}
	if s.Follow(entitled{until: s.Until(), slot: testSlot + 1, epoch: 5}, []int{testSlot, testSlot + 1}); s.Holds(testSlot) {
		t.Error("a slot is held to which the session is not entitled")
	}
	if got := s.Slot(testSlot + 1); !got.Held || got.Epoch != 5 {
		t.Errorf("got %+v, want the slot held under epoch 5", got)
	}
}

func TestNewPermitsNothing(t *testing.T) {
	f := New("fleet-0", "fleet-0_abcde", 16, NewTime(clocktesting.NewFakeClock(time.Unix(0, 0))), prometheus.NewRegistry(), nil)
	if f.Acts() || !f.Until().IsZero() {
		t.Errorf("it acts: %t, until %v", f.Acts(), f.Until())
	}
	if _, _, ok := f.Admit(t.Context(), testSlot); ok {
		t.Error("it admits a pass of a slot")
	}
	if _, _, leads := f.Lead(t.Context()); leads {
		t.Error("it leads")
	}
}

// A slot that is confirmed under its epoch keeps its passes, as with each renewal. After a moment
// without the slot they have ended, and the slot is as open as before.
func TestFollowSlotConfirmedStaysOpen(t *testing.T) {
	s := newStand(t)
	ctx, done := s.own(t)
	defer done()
	confirmed, doubted := entitled{until: s.Until(), slot: testSlot, epoch: 3}, entitled{until: s.Until(), slot: testSlot + 1, epoch: 1}
	s.Follow(confirmed, []int{testSlot})
	if ctx.Err() != nil || !s.Holds(testSlot) {
		t.Errorf("confirmed: the slot is open: %t, and its pass ended with %v", s.Holds(testSlot), context.Cause(ctx))
	}
	s.Follow(doubted, []int{testSlot})
	if wantRefused(t, "a pass of a slot in doubt", context.Cause(ctx), Lost); s.Holds(testSlot) {
		t.Error("a slot in doubt is open")
	}
	s.Follow(confirmed, []int{testSlot})
	if !s.Holds(testSlot) {
		t.Error("a slot that is confirmed after a doubt is not open")
	}
}

// TestWhatEndsPasses: a slot that stops lets them end, one that is cancelled or shut ends them,
// each with its reason.
func TestWhatEndsPasses(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(s *stand)
		want Refusal // "" means that the pass goes on
		step Refusal // of the next step of the pass
	}{
		"stop":   {func(s *stand) { s.Stop(testSlot) }, "", Stopping},
		"cancel": {func(s *stand) { s.Cancel(testSlot) }, Stopping, Stopping},
		"shut":   {func(s *stand) { s.Shut(testSlot) }, Lost, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			ctx, done := s.own(t)
			defer done()
			tc.do(s)
			refused, ok := errors.AsType[*RefusedError](context.Cause(ctx))
			if ok != (tc.want != "") || ok && refused.Why != tc.want {
				t.Errorf("the pass ended with %v, want %q", context.Cause(ctx), tc.want)
			}
			if tc.step != "" {
				wantRefused(t, "the next step", runner.MayGoOn(ctx), tc.step)
			}
			if s.Holds(testSlot) {
				t.Error("the slot is open")
			}
			s.Resume(testSlot)
			s.Open(testSlot, 3)
			if !s.Holds(testSlot) {
				t.Error("the slot does not open again")
			}
		})
	}
}

// TestNothingIsOwnedAfterTheEnd of a session, even if its fence moved on.
func TestNothingIsOwnedAfterTheEnd(t *testing.T) {
	s := newStand(t)
	ctx, done := s.own(t)
	defer done()
	s.Close()
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
	h.setOpen(4, s.time.Now())
	if !s.Holds(testSlot) {
		t.Error("it is shut under the next epoch")
	}
}

// TestTheFirstPassAfterAnOpeningIsMeasured, and no other.
func TestTheFirstPassAfterAnOpeningIsMeasured(t *testing.T) {
	s := newStand(t)
	h := s.slots[testSlot]
	expectRefusals := func(when string, opened, served time.Time) {
		t.Helper()
		if got := h.view(testSlot); !got.Opened.Equal(opened) || !got.Served.Equal(served) {
			t.Errorf("%s: opened %v and served %v, want %v and %v", when, got.Opened, got.Served, opened, served)
		}
	}
	begun := s.clock.Now()
	expectRefusals("opened", begun, time.Time{})
	for range 2 {
		s.clock.Step(time.Second)
		_, done := s.own(t)
		done()
		expectRefusals("served", begun, begun.Add(time.Second))
	}
	h.setOpen(3, s.clock.Now())
	expectRefusals("opened again", begun.Add(2*time.Second), time.Time{})
	_, done := s.own(t)
	done()
	h.setClosed()
	expectRefusals("shut", time.Time{}, time.Time{})
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
	s.slots[testSlot].setClosed()
	if _, _, ok = s.Admit(p, testSlot); ok || p.waiting != 0 {
		t.Errorf("a slot is shut: admitted: %t, and %d contexts wait for the end of their parent", ok, p.waiting)
	}
}
