package fence

import (
	"net/http"
	"testing"
	"time"
)

func TestLeaderGate_AdmitsKeysWhileTheSessionLeads(t *testing.T) {
	s := newStand(t)
	gate := NewLeaderGate[string](s.Fence)
	if _, _, ok := gate.Admit(t.Context(), "a"); ok {
		t.Fatal("a session that does not lead admits a key")
	}
	until := s.time.Moment().Add(5 * time.Second)
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

	s.clock.Step(5 * time.Second)
	_, err = s.send(ctx, t, http.MethodPatch) //nolint:bodyclose // there is none
	wantRefused(t, "a write after the end of the leadership", err, Fenced)
	if _, _, ok := gate.Admit(t.Context(), "b"); ok {
		t.Error("a key is admitted after the end of the leadership")
	}
}
