package check

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
)

// wantsChecks waits, and fails unless the server was checked that often meanwhile.
func (f *fakeServer) wantsChecks(d time.Duration, want int32) {
	f.Helper()
	before := f.checks.Load()
	time.Sleep(d)
	synctest.Wait()
	if n := f.checks.Load() - before; n != want {
		f.Errorf("%d checks in %s, want %d", n, d, want)
	}
}

// Requests that fail one after the other cause one check in each second.
func TestRequestThatFailsSoonAfterACheckWaits(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		time.Sleep(300 * time.Millisecond)
		f.request(http.StatusInternalServerError, nil)
		f.wantsChecks(600*time.Millisecond, 0)
		f.request(http.StatusInternalServerError, nil)
		f.wantsChecks(200*time.Millisecond, 1)
		f.wantsChecks(10*time.Second, 0)
	})
}

// While a server does not answer it is checked often enough: requests that fail do not add checks.
func TestRequestThatFailsWhileTheServerDoesNotAnswerStartsNoCheck(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		f.becomes("fails", time.Minute+time.Second)
		f.request(http.StatusInternalServerError, nil)
		f.wantsChecks(4*time.Second, 0)
	})
}

// A client that stops waiting shows nothing about the server.
func TestRequestThatIsCanceledStartsNoCheck(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/api", http.NoBody)
		if err != nil {
			f.Fatal(err)
		}
		next := roundTripper(func(*http.Request) (*http.Response, error) { return nil, context.Canceled })
		answer, err := f.Wrap(next).RoundTrip(r)
		if err == nil {
			_ = answer.Body.Close()
			f.Error("no error of a request that was canceled")
		}
		f.wantsChecks(10*time.Second, 0)
	})
}

// An answer that comes after the time for it is none, and neither is one that comes only because
// the time has passed.
func TestAnswerThatComesTooLateIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, "target", func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !s.Fact().Away {
			t.Error("a server that never answers in time is not away")
		}
		page := httptest.NewRecorder()
		Servers{s}.ServeHTTP(page, nil)
		if !strings.Contains(page.Body.String(), context.DeadlineExceeded.Error()) {
			t.Errorf("the page does not show that the time has passed: %s", page.Body)
		}
		cancel()
		<-ended
	})
}

// A check that ends because the process ends says nothing about the server.
func TestCheckThatEndsWithTheProcessIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		changes := 0
		s := newServer(t, "target", func(ctx context.Context) error {
			if !hangs.Swap(true) {
				return errors.New("connection refused")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		s.OnChange(func() { changes++ })
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		// It fails at 0 s, and hangs from 6 s to 12 s, from 18 s to 24 s, and from 30 s on.
		time.Sleep(settings.Timeout + time.Second)
		synctest.Wait()
		cancel()
		<-ended
		if s.Fact().Away || changes > 0 {
			t.Errorf("away: %t, after %d changes, want neither", s.Fact().Away, changes)
		}
	})
}

func TestDebugPageShowsNoErrorOfAServerThatAnswersAgain(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		f.becomes("fails", 2*time.Minute)
		f.becomes("answers", time.Minute)
		page := httptest.NewRecorder()
		Servers{f.Server}.ServeHTTP(page, nil)
		var shown []map[string]any
		if err := json.Unmarshal(page.Body.Bytes(), &shown); err != nil || len(shown) != 1 || shown[0]["error"] != nil ||
			shown[0]["away"] != false {
			f.Errorf("%v: %s", err, page.Body)
		}
	})
}
