package fence

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func TestStoppedRequestIsSentLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.faultPoint = NewFaultPoint("")
		order := func(method, body string) string {
			answer := httptest.NewRecorder()
			s.faultPoint.ServeHTTP(answer, httptest.NewRequest(method, "/debug/faultpoints", strings.NewReader(body)))
			return answer.Body.String()
		}
		if got := order(http.MethodPost, "nonsense"); !strings.Contains(got, "expected a JSON object with match or answer") {
			t.Errorf("an invalid body was accepted: %s", got)
		}
		order(http.MethodPost, `{"match": "PATCH /apis/x/"}`)
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
		if got := order(http.MethodGet, ""); !strings.Contains(got, "PATCH /apis/x/v1/things/y") {
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
		order(http.MethodDelete, "")
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

// TestFaultPointStopsWorkStepByStep has two requests begin, and go on one after the other, the
// first one with its answer held, too.
func TestFaultPointStopsWorkStepByStep(t *testing.T) {
	const thing = "/apis/x/v1/things/y under slot=7; epoch=3"
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.faultPoint = NewFaultPoint("under slot=")
		order := func(method, body string) string {
			answer := httptest.NewRecorder()
			s.faultPoint.ServeHTTP(answer, httptest.NewRequest(method, "/debug/faultpoints", strings.NewReader(body)))
			synctest.Wait()
			return strings.TrimSpace(answer.Body.String())
		}
		if got := order(http.MethodPut, "{}"); got != "nothing is held" {
			t.Errorf("before anything is held: %s", got)
		}
		ctx, done := s.own(t)
		defer done()
		ended := 0
		for _, method := range []string{http.MethodPatch, http.MethodPost} {
			go func() {
				if answer, err := s.send(ctx, t, method); err == nil {
					_ = answer.Body.Close()
				}
				ended++
			}()
			synctest.Wait()
		}
		for _, step := range []struct {
			order string
			held  []string
			ended int
		}{
			{`{"answer": true}`, []string{"POST " + thing, "answer to PATCH " + thing}, 0},
			{`{}`, []string{"answer to PATCH " + thing}, 1},
			{`{}`, nil, 2},
		} {
			order(http.MethodPut, step.order)
			var state struct{ Held []string }
			if err := json.Unmarshal([]byte(order(http.MethodGet, "")), &state); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(state.Held, step.held) || ended != step.ended {
				t.Errorf("after %s: %d have ended, and held are %q", step.order, ended, state.Held)
			}
		}
		go func() {
			if answer, err := s.send(ctx, t, http.MethodPatch); err == nil {
				_ = answer.Body.Close()
			}
			ended++
		}()
		synctest.Wait()
		order(http.MethodDelete, "")
		other, err := s.send(ctx, t, http.MethodPatch)
		if err != nil || ended != 3 {
			t.Fatalf("something is held when nothing is to be: %v", err)
		}
		_ = other.Body.Close()
	})
}

// TestFaultPointStopsTheAnswerOfADriver has the cloud do what a call asks for, and its answer come
// later.
func TestFaultPointStopsTheAnswerOfADriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.faultPoint = NewFaultPoint(string(driver.OpCreate))
		order := func(method, body string) string {
			answer := httptest.NewRecorder()
			s.faultPoint.ServeHTTP(answer, httptest.NewRequest(method, "/debug/faultpoints", strings.NewReader(body)))
			synctest.Wait()
			return answer.Body.String()
		}
		ctx, done := s.own(t)
		defer done()
		inner, calls := counting()
		answered := false
		go func() {
			_, err := s.Driver(inner).CreateMachine(ctx, driver.CreateMachineRequest{})
			answered = err == nil
		}()
		synctest.Wait()
		order(http.MethodPut, `{"answer": true}`)
		if held := order(http.MethodGet, ""); !strings.Contains(held, "answer to create_machine") || *calls != 1 || answered {
			t.Errorf("%d calls reached the cloud, answered: %t; held: %s", *calls, answered, held)
		}
		if order(http.MethodPut, "{}"); !answered {
			t.Error("the answer went on, and the call has none")
		}
	})
}

func TestNothingStopsWithoutTheFaultPoint(t *testing.T) {
	var none *FaultPoint
	ctx := context.Background()
	if late, _ := none.here(ctx, "anything", Ownership{}); late != ctx {
		t.Error("a fault point that is not there stops work")
	}
}
