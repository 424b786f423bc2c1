package requests

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests/budget"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// server answers requests; a nil function never does.
type server func(r *http.Request) (*http.Response, error)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	if s == nil {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s(r)
}

func answering(status int, body io.Reader) server {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"7"}}, Body: io.NopCloser(body)}, nil
	}
}

func newBudgets(t *testing.T) *Budgets {
	t.Helper()
	b, err := New(Config{Total: 400, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// send sends a request to its end.
func send(t *testing.T, through http.RoundTripper, method, path string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://a.example"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := through.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.ReadAll(answer.Body)
	if after := answer.Header.Get("Retry-After"); after != "" {
		t.Errorf("the answer has the Retry-After %s", after)
	}
	return errors.Join(err, answer.Body.Close())
}

// isRefused reports whether an error has a pass wait.
func isRefused(err error) bool {
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && refused.Wait() > 0
}

// Ten target clusters of thirty hang, and each has work for 200 workers: they hold half of the 800
// workers at most, and nearly none after the first timeout. The others are answered at once.
func TestClustersThatHangHoldFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budgets, changes := newBudgets(t), 0
		var hanging sync.WaitGroup
		var hung []*Budget
		wave := func() {
			for _, b := range hung {
				for range 200 {
					hanging.Go(func() { _ = send(t, b.Wrap(server(nil)), http.MethodGet, "/api/v1/nodes/a") })
				}
			}
			synctest.Wait()
		}
		held := func() (n int) {
			for _, b := range hung {
				n += b.shared.InFlight()
			}
			return n
		}
		for i := range 10 {
			hung = append(hung, budgets.Open(string(rune('a'+i)), func() { changes++ }))
		}
		begun := time.Now()
		wave()
		if held() != 400 {
			t.Errorf("%d requests are in flight, want 400", held())
		}
		for i := range 20 {
			good := budgets.Open(string(rune('A'+i)), func() {})
			if err := send(t, good.Wrap(answering(http.StatusOK, strings.NewReader("{}"))), http.MethodGet, "/api/v1/nodes/a"); err != nil {
				t.Errorf("a cluster that answers: %v", err)
			}
			good.Close()
		}
		time.Sleep(Timeout)
		hanging.Wait()
		if took := time.Since(begun); took != Timeout {
			t.Errorf("the requests took %s, want %s", took, Timeout)
		}
		if held() != 0 || changes != 10 {
			t.Errorf("after the timeout %d requests are in flight, and %d budgets have changed; want none, and 10", held(), changes)
		}
		time.Sleep(budget.FirstPause)
		wave()
		if held() != 10 {
			t.Errorf("after the pause %d requests are in flight, want one of each cluster", held())
		}
		time.Sleep(Timeout)
		hanging.Wait()
	})
}

func TestWhatRequestsShow(t *testing.T) {
	ok := strings.NewReader
	cut := func() io.Reader { return io.MultiReader(strings.NewReader("{"), errorReader{}) }
	for _, tc := range []struct {
		name, method, path string
		server             server
		opens              bool
	}{
		{"answer", http.MethodGet, "/api/v1/nodes/a", answering(http.StatusOK, ok("{}")), false},
		{"refusal", http.MethodGet, "/api/v1/nodes/a", answering(http.StatusForbidden, ok("{}")), false},
		{"throttling", http.MethodGet, "/api/v1/nodes/a", answering(http.StatusTooManyRequests, ok("{}")), true},
		{
			"eviction that is not allowed", http.MethodPost, "/api/v1/namespaces/a/pods/b/eviction", answering(http.StatusTooManyRequests, ok("{}")),
			false,
		},
		{"storage that is away", http.MethodGet, "/api/v1/nodes/a", answering(http.StatusInternalServerError, ok("{}")), true},
		{"webhook that is away", http.MethodPatch, "/api/v1/nodes/a", answering(http.StatusInternalServerError, ok("{}")), false},
		{"answer that ends early", http.MethodGet, "/api/v1/nodes/a", answering(http.StatusOK, cut()), true},
		{"no connection", http.MethodPatch, "/api/v1/nodes/a", func(*http.Request) (*http.Response, error) {
			return nil,
				errors.New("refused")
		}, true},
		{"write of another owner", http.MethodPatch, "/api/v1/nodes/a", func(*http.Request) (*http.Response, error) {
			return nil,
				notOursError{}
		}, false},
		{"hanging watch", http.MethodGet, "/api/v1/nodes?watch=true", nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBudgets(t).Open("a", func() {})
				for range budget.Failures {
					if err := send(t, b.Wrap(tc.server), tc.method, tc.path); isRefused(err) {
						t.Fatal(err)
					}
				}
				refused := isRefused(send(t, b.Wrap(answering(http.StatusOK, ok("{}"))), tc.method, tc.path))
				if why, _ := b.Problem(); refused != tc.opens || (why != "") != tc.opens {
					t.Errorf("the next request is refused: %t, want %t; the problem is %q", refused, tc.opens, why)
				}
			})
		})
	}
}

// A watch takes no part of the share once it has begun, and lasts longer than other answers.
func TestWatchesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudgets(t).Open("a", func() {})
		events, sender := io.Pipe()
		var read sync.WaitGroup
		read.Go(func() {
			if err := send(t, b.Wrap(answering(http.StatusOK, events)), http.MethodGet, "/api/v1/nodes?watch=true"); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(2 * Timeout)
		synctest.Wait()
		if n := b.shared.InFlight(); n != 0 {
			t.Errorf("%d requests are in flight, want none", n)
		}
		_ = sender.Close()
		read.Wait()
	})
}

// Namespaces that name the same cluster share what may be in flight, as long as one of them uses
// it, and not the failures of one of them: its credentials alone may be the cause.
func TestNamespacesShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budgets, changed := newBudgets(t), ""
		one, two := budgets.Open("a", func() { changed += "one " }), budgets.Open("a", func() { changed += "two " })
		other := budgets.Open("b", func() { changed += "other " })
		answers := answering(http.StatusOK, strings.NewReader("{}"))
		for range budget.Failures {
			_ = send(t, one.Wrap(answering(http.StatusTooManyRequests, strings.NewReader("{}"))), http.MethodGet, "/")
		}
		if why, _ := one.Problem(); why == "" || changed != "one " {
			t.Errorf("got the problem %q of the namespace that failed, and reports to %s", why, changed)
		}
		if why, _ := two.Problem(); why != "" || send(t, two.Wrap(answers), http.MethodGet, "/") != nil {
			t.Errorf("got the problem %q of another namespace", why)
		}
		var hanging sync.WaitGroup
		for range budget.MostInFlight {
			hanging.Go(func() { _ = send(t, two.Wrap(server(nil)), http.MethodGet, "/") })
		}
		synctest.Wait()
		one.Close()
		again := budgets.Open("a", func() {})
		if err := send(t, again.Wrap(answers), http.MethodGet, "/"); !isRefused(err) {
			t.Errorf("the budget is forgotten while it is used: got %v", err)
		}
		if err := send(t, other.Wrap(answers), http.MethodGet, "/"); err != nil {
			t.Errorf("another cluster: %v", err)
		}
		hanging.Wait()
		other.Close()
		if len(budgets.all) != 1 {
			t.Errorf("%d budgets are kept, want 1", len(budgets.all))
		}
	})
}

// What other credentials may have ended is reported, also at the end of a pause.
func TestResetReportsTheEndOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		b := newBudgets(t).Open("a", func() { changes++ })
		b.Reset()
		for range budget.Unauthenticated {
			_ = send(t, b.Wrap(answering(http.StatusUnauthorized, strings.NewReader("{}"))), http.MethodGet, "/")
		}
		time.Sleep(2 * budget.FirstPause)
		b.Reset()
		b.Reset()
		if changes != 2 {
			t.Errorf("got %d reports, want that of the failures and that of their end", changes)
		}
	})
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type notOursError struct{}

func (notOursError) Error() string { return "another replica owns it" }
func (notOursError) NotOurs() bool { return true }
