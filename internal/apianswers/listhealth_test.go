package apianswers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestListedResource(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/nodes": "nodes",
		"/api/v1/nodes?limit=500&labelSelector=x":                          "nodes",
		"/api/v1/namespaces/a/pods":                                        "pods",
		"/api/v1/namespaces":                                               "namespaces",
		"/apis/machine.sapcloud.io/v1alpha1/machines":                      "machines",
		"/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines":         "machines",
		"/behind/a/path/apis/machine.sapcloud.io/v1alpha1/machines":        "machines",
		"/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines/m":       "",
		"/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines?watch=1": "",
		"/api/v1/nodes/n":           "",
		"/api/v1/nodes/n/status":    "",
		"/api/v1/namespaces/a":      "",
		"/apis/machine.sapcloud.io": "",
		"/apis":                     "",
		"/api":                      "",
		"/version":                  "",
		"/":                         "",
		"":                          "",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := listedResource(r); got != want || ok != (want != "") {
			t.Errorf("%s: want %q, got %q", path, want, got)
		}
		r.Method = http.MethodDelete
		if got, ok := listedResource(r); ok {
			t.Errorf("DELETE %s is taken for a list of %q", path, got)
		}
	}
}

// answers of a server, one after the other.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// brokenBody fails before its end.
type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection lost") }
func (brokenBody) Close() error             { return nil }

func TestListsThatAreNotAnsweredForLongAreBroken(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	const after = 15 * time.Second
	health := NewListHealth(clock, "nodes")
	closedEarly := io.NopCloser(strings.NewReader("{}"))
	answer := func(status int, body io.ReadCloser, err error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/api/v1/nodes", nil)
		if errors.Is(err, context.Canceled) {
			cancel()
		}
		got, err := health.Wrap(answers(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: body}, err
		})).RoundTrip(r)
		if err == nil {
			if body != closedEarly {
				_, _ = io.ReadAll(got.Body)
			}
			_ = got.Body.Close()
		}
	}
	good := func() { answer(http.StatusOK, io.NopCloser(strings.NewReader("{}")), nil) }
	broken := func(want string) {
		t.Helper()
		if got, ok := health.Broken(after); got != want || ok != (want != "") {
			t.Errorf("at %d s: want %q, got %q", clock.Now().Unix(), want, got)
		}
	}
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	good()
	broken("")
	for name, fail := range map[string]func(){
		"a request that fails": func() { answer(0, nil, errors.New("no route")) },
		"a server that fails":  func() { answer(http.StatusInternalServerError, io.NopCloser(strings.NewReader("")), nil) },
		"an answer that fails": func() { answer(http.StatusOK, brokenBody{}, nil) },
	} {
		t.Log(name)
		fail()
		pass(after - time.Second)
		fail()
		broken("")
		pass(time.Second)
		broken("nodes")
		pass(2*after - time.Second)
		broken("") // no request for a long time
		fail()
		broken("nodes")
		good()
		broken("")
	}
	answer(0, nil, context.Canceled)
	pass(after)
	answer(0, nil, context.Canceled)
	broken("")
	answer(http.StatusOK, closedEarly, nil)
	pass(2 * after)
	broken("")

	done := health.Begin("nodes") // it hangs
	pass(after - time.Second)
	good() // others are answered
	broken("")
	pass(time.Second)
	broken("nodes")
	done(false, false)
	broken("")
}

// TestSlowListsAreNotBroken: what all lists show is no fault of one of them.
func TestSlowListsAreNotBroken(t *testing.T) {
	for _, test := range []struct{ took, hangs time.Duration }{
		{0, 15 * time.Second}, {7 * time.Second, 15 * time.Second}, {20 * time.Second, 40 * time.Second}, {time.Hour, 4 * time.Minute},
	} {
		clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
		health := NewListHealth(clock, "nodes")
		done := health.Begin("nodes")
		clock.SetTime(clock.Now().Add(test.took))
		done(true, true)
		health.Begin("nodes")
		clock.SetTime(clock.Now().Add(test.hangs - 1))
		if _, broken := health.Broken(15 * time.Second); broken {
			t.Errorf("after a list of %v one that hangs is broken before %v", test.took, test.hangs)
		}
		clock.SetTime(clock.Now().Add(1))
		if _, broken := health.Broken(15 * time.Second); !broken {
			t.Errorf("after a list of %v one that hangs is not broken after %v", test.took, test.hangs)
		}
	}
}

// TestListsThatAreNoEvidence: a single failure, lists of other resources, and those of which
// something else decides how long they may take.
func TestListsThatAreNoEvidence(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	health := NewListHealth(clock, "nodes")
	fail := func(ctx context.Context, resource string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/api/v1/"+resource, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		//nolint:bodyclose // there is none
		_, _ = health.Wrap(answers(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") })).RoundTrip(r)
	}
	fail(t.Context(), "nodes")
	for range 20 {
		clock.SetTime(clock.Now().Add(time.Second))
		fail(t.Context(), "secrets")
		fail(Unrecorded(t.Context()), "nodes")
		if resource, broken := health.Broken(15 * time.Second); broken {
			t.Fatalf("at %d s: lists of %s are broken, want none", clock.Now().Unix(), resource)
		}
	}
}
