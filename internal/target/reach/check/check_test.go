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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var settings = reach.Settings{Timeout: 30 * time.Second, Period: time.Minute}

// fakeServer is an API server that answers, fails or hangs.
type fakeServer struct {
	*testing.T

	*Server
	mode    atomic.Value // "answers", "fails", "hangs"
	checks  atomic.Int32
	changes atomic.Int32
	started time.Time
}

func newServer(t *testing.T, name string, read func(context.Context) error) *Server {
	t.Helper()
	s, err := New(Config{Name: name, Settings: settings, Clock: clock.RealClock{}, Read: read})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onServer runs a test in virtual time, with a server that answers and is checked.
func onServer(t *testing.T, test func(f *fakeServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{T: t, started: time.Now()}
		f.mode.Store("answers")
		f.Server = newServer(t, "target", f.read)
		f.OnChange(func() { f.changes.Add(1) })
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Server.Run(ctx)
		}()
		synctest.Wait()
		test(f)
		cancel()
		<-ended
	})
}

func (f *fakeServer) read(ctx context.Context) error {
	f.checks.Add(1)
	switch f.mode.Load() {
	case "fails":
		return errors.New("connection refused")
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "dummy")
}

func (f *fakeServer) becomes(mode string, d time.Duration) {
	f.Helper()
	f.mode.Store(mode)
	time.Sleep(d)
	synctest.Wait()
}

func (f *fakeServer) expect(away bool, changes int32) {
	f.Helper()
	if f.Fact().Away != away || f.changes.Load() != changes {
		f.Errorf("at %s: away %v after %d changes, want %v after %d", time.Since(f.started), f.Fact().Away, f.changes.Load(), away, changes)
	}
}

func TestServerThatDoesNotAnswerIsAwayAndIsBack(t *testing.T) {
	for _, mode := range []string{"fails", "hangs"} {
		t.Run(mode, func(t *testing.T) {
			onServer(t, func(f *fakeServer) {
				f.becomes("answers", 59*time.Second)
				f.becomes(mode, 30*time.Second)
				f.expect(false, 0)
				f.becomes(mode, 20*time.Second)
				f.expect(true, 1)
				f.becomes(mode, 10*time.Minute)
				f.expect(true, 1)
				f.becomes("answers", 13*time.Second)
				f.expect(false, 2)
				if out := f.Fact().Back.Sub(f.Fact().From); out < 10*time.Minute || out > 13*time.Minute {
					f.Errorf("it was away for %s", out)
				}
			})
		})
	}
}

func TestBlipChangesNothing(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		f.becomes("hangs", time.Minute+20*time.Second)
		f.becomes("answers", time.Minute)
		f.becomes("fails", 25*time.Second)
		f.becomes("answers", time.Hour)
		f.expect(false, 0)
	})
}

// A server that answers costs one read in each period, however many requests fail.
func TestChecksAreFew(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		f.becomes("answers", time.Hour)
		if n := f.checks.Load(); n > 61 {
			f.Errorf("%d checks in an hour", n)
		}
		before := f.checks.Load()
		for range 1000 {
			f.request(http.StatusInternalServerError, nil)
		}
		time.Sleep(10 * time.Second)
		if n := f.checks.Load() - before; n < 1 || n > 2 {
			f.Errorf("%d checks after 1000 requests that failed at once", n)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (f *fakeServer) request(status int, err error) {
	f.Helper()
	rt := f.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: http.NoBody}, err
	}))
	r, fault := http.NewRequestWithContext(f.Context(), http.MethodGet, "http://server/api", http.NoBody)
	if fault != nil {
		f.Fatal(fault)
	}
	if answer, fault := rt.RoundTrip(r); fault == nil {
		_ = answer.Body.Close()
	}
}

// A request that fails has the server checked at once, and one that the server answers does not.
func TestRequestThatFailsStartsACheck(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		err    error
		checks int32
	}{
		"no connection":     {0, errors.New("connection refused"), 1},
		"an internal error": {http.StatusInternalServerError, nil, 1},
		"overloaded":        {http.StatusTooManyRequests, nil, 1},
		"unauthorized":      {http.StatusUnauthorized, nil, 1},
		"not found":         {http.StatusNotFound, nil, 0},
		"forbidden":         {http.StatusForbidden, nil, 0},
		"a conflict":        {http.StatusConflict, nil, 0},
		"success":           {http.StatusOK, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(f *fakeServer) {
				time.Sleep(10 * time.Second)
				before := f.checks.Load()
				f.request(tc.status, tc.err)
				synctest.Wait()
				if n := f.checks.Load() - before; n != tc.checks {
					f.Errorf("%d checks, want %d", n, tc.checks)
				}
			})
		})
	}
}

func TestIsAnswer(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"success":      {nil, true},
		"not found":    {apierrors.NewNotFound(nodes, "dummy"), true},
		"forbidden":    {apierrors.NewForbidden(nodes, "dummy", errors.New("no")), true},
		"unauthorized": {apierrors.NewUnauthorized("no"), false},
		"overloaded":   {apierrors.NewTooManyRequests("later", 1), false},
		"no storage":   {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), false},
		"unavailable":  {apierrors.NewServiceUnavailable("no"), false},
		"timeout":      {apierrors.NewTimeoutError("no", 1), false},
		"connection":   {errors.New("connection refused"), false},
		"deadline":     {context.DeadlineExceeded, false},
	} {
		if got := IsAnswer(tc.err); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestMetricsAndDebugPage(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		registry, all := prometheus.NewRegistry(), Servers{f.Server, newServer(t, "control", f.read)}
		all.Register(registry)
		f.becomes("fails", 2*time.Minute)
		want := `
# HELP mcf_apiserver_away 1 while this API server has not answered this replica for longer than --machine-safety-apiserver-statuscheck-timeout.
# TYPE mcf_apiserver_away gauge
mcf_apiserver_away{server="control"} 0
mcf_apiserver_away{server="target"} 1
# HELP mcm_machine_controller_frozen 1 while an API server is away, so that decisions which depend on it wait in this replica.
# TYPE mcm_machine_controller_frozen gauge
mcm_machine_controller_frozen 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			f.Error(err)
		}
		page := httptest.NewRecorder()
		all.ServeHTTP(page, nil)
		var shown []map[string]any
		if err := json.Unmarshal(page.Body.Bytes(), &shown); err != nil || len(shown) != 2 {
			f.Fatalf("%v: %s", err, page.Body)
		}
		if shown[0]["server"] != "target" || shown[0]["away"] != true || shown[0]["error"] != "connection refused" ||
			shown[0]["failingSince"] == nil {
			f.Errorf("got %s", page.Body)
		}
	})
}

// What a server shows that was not reached yet is not acted on, however long ago the process has
// started.
func TestServerThatWasNotReachedYetIsNotSettled(t *testing.T) {
	onServer(t, func(f *fakeServer) {
		other := newServer(t, "other", f.read)
		time.Sleep(reach.Settle + time.Second)
		if settled := other.Fact().Settled(); settled.Before(time.Now().Add(reach.Settle)) {
			t.Errorf("settled at %s, now it is %s", settled, time.Now())
		}
		if settled := f.Fact().Settled(); settled.After(time.Now()) {
			t.Errorf("a server that was reached a minute ago is settled only at %s", settled)
		}
	})
}

func TestNoServerAlwaysAnswers(t *testing.T) {
	if (*Server)(nil).Fact() != (reach.Fact{}) {
		t.Error("a server that is not checked is away")
	}
}
