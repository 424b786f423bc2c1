package shard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

func TestWhatIsHeldIsSentLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.hold = NewHold()
		ask := func(method, body string) string {
			answer := httptest.NewRecorder()
			s.hold.ServeHTTP(answer, httptest.NewRequest(method, "/debug/hold", strings.NewReader(body)))
			return answer.Body.String()
		}
		if got := ask(http.MethodPost, "nonsense"); !strings.Contains(got, "expected") {
			t.Errorf("nonsense was taken: %s", got)
		}
		ask(http.MethodPost, `{"match": "PATCH /apis/x/"}`)
		ctx, done := s.own(t)
		defer done()
		var answer *http.Response
		var err error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			answer, err = s.send(ctx, t, http.MethodPatch) //nolint:bodyclose // closed below
		}()
		synctest.Wait()
		if got := ask(http.MethodGet, ""); !strings.Contains(got, "PATCH /apis/x/v1/things/y") {
			t.Errorf("nothing is held: %s", got)
		}
		other, err2 := s.send(ctx, t, http.MethodPatch)
		if err2 != nil {
			t.Fatalf("the next request is held, too: %v", err2)
		}
		_ = other.Body.Close()
		s.slots[testSlot].set(0, false)
		if ctx.Err() == nil {
			t.Error("the slot is lost, and the pass goes on")
		}
		ask(http.MethodDelete, "")
		<-ended
		if err != nil {
			t.Fatalf("what was held was not sent: %v", err)
		}
		if answer.Request.Context().Err() != nil {
			t.Error("what is late was called back")
		}
		_ = answer.Body.Close()
	})
}

func TestNothingIsHeldWithoutTheHook(t *testing.T) {
	var none *Hold
	if ctx := context.Background(); none.here(ctx, "anything") != ctx {
		t.Error("a Hold that is not there holds")
	}
}
