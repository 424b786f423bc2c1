package fence

import (
	"context"
	"net/http"
	"testing"
	"time"
)

func TestLeaderGateAdmitsKeysWhileTheSessionLeads(t *testing.T) {
	s := newStand(t)
	gate := NewLeaderGate[string](s.Fence)
	if _, _, ok := gate.Admit(t.Context(), "a"); ok {
		t.Fatal("a session that does not lead admits a key")
	}
	until := s.time.Moment().Add(3 * time.Second)
	s.leaderUntil.Store(&until)
	s.BeginLeading()
	ctx, done, ok := gate.Admit(t.Context(), "a")
	if !ok {
		t.Fatal("a session that leads admits no key")
	}
	defer done()
	answer, err := s.send(ctx, t, http.MethodPatch)
	if err != nil {
		t.Fatalf("a write under the leadership: %v", err)
	}
	_ = answer.Body.Close()

	s.clock.Step(3 * time.Second)
	_, err = s.send(ctx, t, http.MethodPatch) //nolint:bodyclose // there is none
	wantRefused(t, "a write after the end of the leadership", err, Fenced)
	if _, _, ok := gate.Admit(t.Context(), "b"); ok {
		t.Error("a key is admitted after the end of the leadership")
	}
}

// The next leadership does not begin behind the fence of the one before it, but when its own
// renewal was acknowledged.
func TestEndLeadingEndsPassesAndTheFenceOfTheLeadership(t *testing.T) {
	s := newStand(t)
	s.BeginLeading()
	s.MoveLeaderFence(s.Until())
	ctx, done, ok := s.Lead(t.Context())
	if !ok {
		t.Fatal("the leader does not lead")
	}
	defer done()
	s.EndLeading()
	wantRefused(t, "the pass of the leader", context.Cause(ctx), Lost)
	if s.Leadership().Held {
		t.Error("the leadership is held after its end")
	}
	s.BeginLeading()
	if _, _, leads := s.Lead(t.Context()); leads {
		t.Error("the next leadership has begun without a renewal")
	}
}
