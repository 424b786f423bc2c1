package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// stand is a Fence with a clock that the test moves, and slot 7 held and open until the fence in 9
// s.
type stand struct {
	*Fence

	clock *clocktesting.FakeClock
}

const testSlot = 7

func newStand(t *testing.T) *stand {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s := &stand{clock: clock, Fence: New("fleet-0", "fleet-0_abcde", 16, NewTime(clock), prometheus.NewRegistry(), nil)}
	s.renew(9 * time.Second)
	s.slots[testSlot].set(3, true)
	s.slots[testSlot].setOpen(3, s.time.Now())
	return s
}

// renew moves the fence to d from now.
func (s *stand) renew(d time.Duration) { s.move(s.time.Moment().Add(d)) }

// own admits a pass of slot 7.
func (s *stand) own(t *testing.T) (context.Context, func()) {
	t.Helper()
	ctx, done, ok := s.Admit(t.Context(), testSlot)
	if !ok {
		t.Fatal("an open slot admits no pass")
	}
	return ctx, done
}

// send sends a request through the Fence to a server that accepts everything.
func (s *stand) send(ctx context.Context, t *testing.T, method string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://api/apis/x/v1/things/y", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return s.Transport(acceptsAll{}).RoundTrip(req)
}

type acceptsAll struct{}

func (acceptsAll) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(r.Header.Get("User-Agent"))), Request: r}, nil
}

func wantRefused(t *testing.T, what string, err error, want Refusal) {
	t.Helper()
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Why != want {
		t.Errorf("%s: got %v, want a refusal because it is %s", what, err, want)
	}
}

func TestOwnershipIsCheckedBeforeEachRequest(t *testing.T) {
	s := newStand(t)
	ctx, done := s.own(t)
	defer done()
	sent := func(what, method string, ctx context.Context) {
		t.Helper()
		answer, err := s.send(ctx, t, method)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		_ = answer.Body.Close()
	}
	refused := func(what string, ctx context.Context, want Refusal) {
		t.Helper()
		_, err := s.send(ctx, t, http.MethodPatch) //nolint:bodyclose // there is none
		wantRefused(t, what, err, want)
	}
	sent("under an ownership", http.MethodPatch, ctx)
	sent("a read", http.MethodGet, t.Context())
	refused("without an ownership", t.Context(), Unowned)

	s.clock.Step(9 * time.Second)
	refused("at the fence", ctx, Fenced)
	s.renew(time.Second)
	sent("after a renewal", http.MethodPatch, ctx)

	s.slots[testSlot].set(4, true)
	refused("under the epoch before", ctx, Lost)
	if ctx.Err() == nil {
		t.Error("the context of a pass under the epoch before has not ended")
	}
	s.slots[testSlot].set(0, false)
	refused("after the loss", ctx, Lost)
}

// A slot may be acquired, and what there is to know of it listed, while the session is suspended:
// the request was on its way.
func TestASlotThatCameInASuspensionIsOpenAfterIt(t *testing.T) {
	s := newStand(t)
	const other = testSlot + 1
	h := s.slots[other]
	h.set(0, false) // nothing is entitled in a suspension
	h.setOpen(5, s.time.Now())
	if s.Holds(other) {
		t.Error("it is open in the suspension")
	}
	h.set(5, true)
	if !s.Holds(other) {
		t.Error("it is shut after the suspension")
	}
	h.set(0, false)
	h.set(6, true)
	if s.Holds(other) {
		t.Error("it is open under another epoch, of which nothing is known")
	}
}

// TestItActsUntilTheFence, and again after a renewal.
func TestItActsUntilTheFence(t *testing.T) {
	s := newStand(t)
	s.clock.Step(9*time.Second - 1)
	if !s.Acts() {
		t.Error("it does not act before the fence")
	}
	s.clock.Step(1)
	if s.Acts() {
		t.Error("it acts at the fence")
	}
	s.renew(time.Second)
	if !s.Acts() {
		t.Error("it does not act after a renewal")
	}
	if s.Suspend(); s.Acts() {
		t.Error("it acts although it is suspended")
	}
}

// TestTheWallClockCountsToo: the monotonic clock stands still while a machine is suspended.
func TestTheWallClockCountsToo(t *testing.T) {
	s := newStand(t)
	ctx, done := s.own(t)
	defer done()
	until := s.Until()
	until.Monotonic += time.Hour
	s.move(until)
	s.clock.Step(10 * time.Second)
	_, err := s.send(ctx, t, http.MethodPost) //nolint:bodyclose // there is none
	wantRefused(t, "after a suspension of the machine", err, Fenced)
}

func TestASlotIsIdleWhenNothingIsInFlight(t *testing.T) {
	s := newStand(t)
	ctx, done := s.own(t)
	if err := runner.MayGoOn(ctx); err != nil {
		t.Errorf("a pass of a slot that stays has to end: %v", err)
	}
	idle := 0
	s.slots[testSlot].stop()
	s.OnIdle(testSlot, func() { idle++ })
	if err := runner.MayGoOn(ctx); err == nil || !runner.NotOurs(err) {
		t.Errorf("a pass that could end early goes on: %v", err)
	}
	if _, _, ok := s.Admit(t.Context(), testSlot); ok {
		t.Error("a slot that is handed over admits a pass")
	}
	answer, err := s.send(ctx, t, http.MethodPatch)
	if err != nil {
		t.Fatalf("a pass that was admitted may finish writing: %v", err)
	}
	done()
	if got := s.Busy(); idle != 0 || got != 1 {
		t.Errorf("the body of an answer is open, and %d are in flight; idle was called %d times", got, idle)
	}
	_ = answer.Body.Close()
	_ = answer.Body.Close() // counts once
	if got := s.Busy(); idle != 1 || got != 0 {
		t.Errorf("all has ended, and %d are in flight; idle was called %d times", got, idle)
	}
}

func TestIdleIsReportedOnce(t *testing.T) {
	s := newStand(t)
	_, done := s.own(t)
	slot, everything := 0, 0
	s.OnIdle(testSlot, func() { slot++ })
	s.OnAllIdle(func() { everything++ })
	if slot+everything != 0 {
		t.Fatal("idle, and a pass is in flight")
	}
	done()
	_, again := s.own(t)
	again()
	if slot != 1 || everything != 1 {
		t.Errorf("idle was called %d and %d times, want once each", slot, everything)
	}
	s.OnIdle(testSlot, func() { slot++ })
	_, again = s.own(t)
	again()
	if slot != 2 {
		t.Errorf("idle was called %d times where nothing was in flight, want once", slot-1)
	}
}

func TestWhoOwnsStandsInTheUserAgent(t *testing.T) {
	s := newStand(t)
	ctx, done := s.own(t)
	defer done()
	s.leadership.set(1, true)
	s.leadership.setOpen(1, s.time.Now())
	until := s.Until()
	s.leaderUntil.Store(&until)
	leading, end, ok := s.Lead(t.Context())
	if !ok {
		t.Fatal("the leader may not lead")
	}
	defer end()
	for want, ctx := range map[string]context.Context{
		"machine-controller-fleet/fleet-0 (session=fleet-0_abcde; slot=7; epoch=3)": ctx,
		"machine-controller-fleet/fleet-0 (session=fleet-0_abcde; leader)":          leading,
		"machine-controller-fleet/fleet-0 (session=fleet-0_abcde)":                  t.Context(),
	} {
		answer, err := s.send(ctx, t, http.MethodGet)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(got) != want {
			t.Errorf("got User-Agent %q, want %q", got, want)
		}
	}
}

func TestTheLeadershipHasItsOwnFence(t *testing.T) {
	s := newStand(t)
	s.BeginLeading()
	if _, _, ok := s.Lead(t.Context()); ok {
		t.Error("a leader without an acknowledged renewal leads")
	}
	until := s.time.Moment().Add(time.Second)
	s.leaderUntil.Store(&until)
	ctx, done, ok := s.Lead(t.Context())
	if !ok {
		t.Fatal("the leader may not lead")
	}
	defer done()
	s.clock.Step(time.Second)
	_, err := s.send(ctx, t, http.MethodPatch) //nolint:bodyclose // there is none
	wantRefused(t, "after the leadership's fence", err, Fenced)
	if why := s.maySend(member.NeedLeadership); why != Fenced {
		t.Errorf("a request that needs the leadership is %q, want it refused as fenced", why)
	}
	if why := s.maySend(member.NeedFence); why != "" {
		t.Errorf("a request that needs the session's fence is refused: %s", why)
	}
}

// TestRequestsAboutLeasesNeedWhatTheySay: nothing, the session's fence, or the leadership and both
// fences.
func TestRequestsAboutLeasesNeedWhatTheySay(t *testing.T) {
	s := newStand(t)
	until := s.Until()
	s.leaderUntil.Store(&until)
	expectRefusals := func(when string, nothing, fence, leadership Refusal) {
		t.Helper()
		for need, want := range map[member.Need]Refusal{
			member.NeedNothing: nothing, member.NeedFence: fence, member.NeedLeadership: leadership,
		} {
			answer, err := s.send(WithNeed(t.Context(), need), t, http.MethodPut)
			if want != "" {
				wantRefused(t, fmt.Sprintf("%s, need %v", when, need), err, want)
				continue
			}
			if err != nil {
				t.Errorf("%s, need %v: %v", when, need, err)
				continue
			}
			_ = answer.Body.Close()
		}
	}
	expectRefusals("without the leadership", "", "", Lost)
	s.BeginLeading()
	s.leaderUntil.Store(&until)
	expectRefusals("with the leadership", "", "", "")
	s.clock.Step(9 * time.Second)
	expectRefusals("at the fence", "", Fenced, Fenced)
}

// counting returns a driver that answers nothing, and counts its calls.
func counting() (d *fakecloud.Driver, calls *int) {
	calls = new(int)
	return (&fakecloud.Cloud{}).Via(func(context.Context, fakecloud.Call, func() error) error {
		*calls++
		return nil
	}), calls
}

func TestCallsOfDriversAreFenced(t *testing.T) {
	s := newStand(t)
	inner, calls := counting()
	d := s.Driver(inner)
	ctx, done := s.own(t)
	defer done()
	create := func(ctx context.Context) error {
		_, err := d.CreateMachine(ctx, driver.CreateMachineRequest{})
		return err
	}
	remove := func(ctx context.Context) error {
		_, err := d.DeleteMachine(ctx, driver.DeleteMachineRequest{})
		return err
	}
	look := func(ctx context.Context) error {
		_, err := d.GetMachineStatus(ctx, driver.GetMachineStatusRequest{})
		return err
	}
	for _, step := range []struct {
		name    string
		prepare func()
		do      func(context.Context) error
		owned   bool
		want    Refusal
	}{
		{"create", func() {}, create, true, ""},
		{"create without an ownership", func() {}, create, false, Unowned},
		{"read without an ownership", func() {}, look, false, ""},
		{"create with 3 s left", func() { s.renew(3 * time.Second) }, create, true, Fenced},
		{"delete with 3 s left", func() {}, remove, true, ""},
		{"create with more", func() { s.renew(3*time.Second + 1) }, create, true, ""},
		{"delete while handed over", func() { s.slots[testSlot].stop() }, remove, true, Stopping},
		{"read while handed over", func() {}, look, true, Stopping},
		{"delete after the hand-over was taken back", func() { s.slots[testSlot].resume() }, remove, true, ""},
	} {
		step.prepare()
		before, under := *calls, t.Context()
		if step.owned {
			under = ctx
		}
		err := step.do(under)
		if step.want == "" {
			if err != nil || *calls != before+1 {
				t.Errorf("%s: %v, %d calls", step.name, err, *calls-before)
			}
			continue
		}
		wantRefused(t, step.name, err, step.want)
		if driver.CodeOf(err) != driver.Canceled || *calls != before {
			t.Errorf("%s: code %s, %d calls", step.name, driver.CodeOf(err), *calls-before)
		}
		if runner.NotOurs(err) != (step.want != Unowned) {
			t.Errorf("%s: a runner takes it for ours: %t", step.name, !runner.NotOurs(err))
		}
	}
	if got := s.Busy(); got != 1 {
		t.Errorf("%d are in flight, want the pass only", got)
	}
}

func TestARefusedCallNamesItsMachine(t *testing.T) {
	inner, _ := counting()
	d := newStand(t).Driver(inner)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}}
	for want, target := range map[string]driver.Target{"create_machine n/m": {Machine: m}, "create_machine": {}} {
		_, err := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target})
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.What != want {
			t.Errorf("got %v, want the refusal of %q", err, want)
		}
	}
}

func TestASlotThatTheFleetDoesNotHaveAdmitsNothing(t *testing.T) {
	s := newStand(t)
	for slot, want := range map[int]bool{-1: false, 0: true, 15: true, 16: false} {
		if want {
			s.slots[slot].set(1, true)
			s.Open(slot, 1)
		}
		_, done, ok := s.Admit(t.Context(), slot)
		if ok {
			done()
		}
		if ok != want || s.Holds(slot) != want {
			t.Errorf("slot %d of 16 admits a pass: %t, and is open: %t; want %t", slot, ok, s.Holds(slot), want)
		}
	}
}

func TestTheGateOpensWhenAllIsKnown(t *testing.T) {
	s := newStand(t)
	gate := NewGate(s.Fence, func(key string) (int, bool) { return len(key), key != "" })
	var _ runner.Grouper[string] = gate
	admits := func(key string) bool {
		_, done, ok := gate.Admit(t.Context(), key)
		if ok {
			done()
		}
		return ok
	}
	held := strings.Repeat("x", testSlot)
	if got, none := gate.Group(held), gate.Group(""); got != testSlot || none != -1 {
		t.Errorf("the groups are %d and %d, want the slot, and -1 without one", got, none)
	}
	unknown := NewGate(s.Fence, func(string) (int, bool) { return testSlot, false })
	if _, _, ok := unknown.Admit(t.Context(), held); ok {
		t.Error("admitted a key whose slot is not known")
	}
	if !admits(held) {
		t.Error("an open slot is shut")
	}
	for _, key := range []string{"", "other", strings.Repeat("x", 99)} {
		if admits(key) {
			t.Errorf("admitted %q, whose slot is not held", key)
		}
	}
	s.slots[testSlot].setClosed()
	if admits(held) {
		t.Error("a slot is open whose objects are not known")
	}
	s.slots[testSlot].setOpen(3, s.time.Now())
	s.slots[testSlot].stop()
	if admits(held) || s.Holds(testSlot) {
		t.Error("a slot is open that is to be handed over, or long work for it would go on")
	}
	s.slots[testSlot].resume()
	if !admits(held) || !s.Holds(testSlot) {
		t.Error("a slot is shut that is not to be handed over any more")
	}
}

// The trace by which a slot has come is that of its epoch, and of no later one.
func TestPassesLinkToTheTraceOfTheirSlotsHandOver(t *testing.T) {
	s := newStand(t)
	const arrival = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	arrivalNow := func() string {
		ctx, done := s.own(t)
		defer done()
		owner, _ := telemetry.OwnerFrom(ctx)
		return owner.Arrival
	}
	if got := arrivalNow(); got != "" {
		t.Errorf("before it is known: %q", got)
	}
	s.Arrived(testSlot, 3, arrival)
	if got := arrivalNow(); got != arrival {
		t.Errorf("under its epoch: %q", got)
	}
	s.slots[testSlot].set(4, true)
	s.slots[testSlot].setOpen(4, s.time.Now())
	if got := arrivalNow(); got != "" {
		t.Errorf("under the next epoch: %q", got)
	}
}
