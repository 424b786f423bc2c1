package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// reviews is an API server that knows the token of a reader, who may get /metrics, and that of a stranger.
type reviews struct {
	*reviewer

	clock *clocktesting.FakePassiveClock
	count int
	away  bool
	// revoked reports whether the reader's token has been revoked.
	revoked bool
}

func newReviews(t *testing.T) *reviews {
	t.Helper()
	client := fake.NewClientset()
	r := &reviews{clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	react := func(answer func(runtime.Object) runtime.Object) clienttesting.ReactionFunc {
		return func(action clienttesting.Action) (bool, runtime.Object, error) {
			if r.away {
				return true, nil, errors.New("no answer")
			}
			create, _ := action.(clienttesting.CreateAction)
			return true, answer(create.GetObject()), nil
		}
	}
	client.PrependReactor("create", "tokenreviews", react(func(o runtime.Object) runtime.Object {
		r.count++
		asked, _ := o.(*authenticationv1.TokenReview)
		answer := asked.DeepCopy()
		answer.Status.Authenticated = asked.Spec.Token == "reader" && !r.revoked || asked.Spec.Token == "stranger"
		answer.Status.User.Username = asked.Spec.Token
		return answer
	}))
	client.PrependReactor("create", "subjectaccessreviews", react(func(o runtime.Object) runtime.Object {
		asked, _ := o.(*authorizationv1.SubjectAccessReview)
		answer := asked.DeepCopy()
		path := asked.Spec.NonResourceAttributes
		answer.Status.Allowed = asked.Spec.User == "reader" && path != nil && path.Path == "/metrics" && path.Verb == "get"
		return answer
	}))
	r.reviewer = newReviewer(client, r.clock)
	return r
}

// get returns the status of a request with a header Authorization.
func (r *reviews) get(path, authorization string) int {
	req := httptest.NewRequest(http.MethodGet, path, nil)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	r.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, req)
	return w.Code
}

func TestMetricsAreServedToThoseWhoMayReadThem(t *testing.T) {
	r := newReviews(t)
	for _, tc := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", 401},
		{"/metrics", "Basic cmVhZGVyOg==", 401},
		{"/metrics", "Bearer ", 401},
		{"/metrics", "Bearer unknown", 401},
		{"/metrics", "Bearer " + strings.Repeat("x", maxBearer+1), 401},
		{"/metrics", "Bearer stranger", 403},
		{"/metrics", "Bearer reader", 200},
		{"/debug/slots", "Bearer reader", 403},
	} {
		if got := r.get(tc.path, tc.authorization); got != tc.want {
			t.Errorf("%s with %.20q: status %d, want %d", tc.path, tc.authorization, got, tc.want)
		}
	}
	if r.count != 4 {
		t.Errorf("%d tokens were reviewed, want 4: what is no token of a possible length is refused at once", r.count)
	}
}

func TestReviewsAreRemembered(t *testing.T) {
	r := newReviews(t)
	expect := func(want, asked int) {
		t.Helper()
		if got := r.get("/metrics", "Bearer reader"); got != want || r.count != asked {
			t.Errorf("at %s: status %d after %d reviews, want %d after %d", r.clock.Now(), got, r.count, want, asked)
		}
	}
	expect(200, 1)
	expect(200, 1)
	r.clock.SetTime(time.Unix(0, 0).Add(reviewFresh))
	expect(200, 2)
	r.away = true
	r.clock.SetTime(r.clock.Now().Add(reviewStale - time.Second))
	expect(200, 2)
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	expect(503, 2)
	r.away = false
	expect(200, 3)
}

// A client without access sends a different token with each request. What is kept is bounded, and has the reader's answer, which is
// valid while the API server does not answer.
func TestManyTokensDoNotDisplaceTheReader(t *testing.T) {
	r := newReviews(t)
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusOK {
		t.Fatalf("status %d, want 200", got)
	}
	for i := range 3 * rememberedReviews {
		r.clock.SetTime(r.clock.Now().Add(time.Second / reviewsPerSecond))
		r.get("/metrics", fmt.Sprintf("Bearer %d", i))
	}
	if r.refused.Len() != rememberedReviews || r.allowed.Len() != 1 {
		t.Errorf("%d refusals and %d other answers are kept, want %d and 1", r.refused.Len(), r.allowed.Len(), rememberedReviews)
	}
	r.away = true
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusOK {
		t.Errorf("status %d while the API server is away, want 200", got)
	}
}

func TestAReaderThatLosesAccessIsRefused(t *testing.T) {
	r := newReviews(t)
	for _, tc := range []struct {
		revoked bool
		want    int
	}{{false, 200}, {true, 401}, {false, 200}} {
		r.revoked = tc.revoked
		r.clock.SetTime(r.clock.Now().Add(reviewFresh))
		for range 2 {
			if got := r.get("/metrics", "Bearer reader"); got != tc.want {
				t.Errorf("token revoked: %t, status %d, want %d", tc.revoked, got, tc.want)
			}
		}
	}
}

// Reviews are requests of the fleet to the API server.
func TestReviewsAreBoundedInRate(t *testing.T) {
	r := newReviews(t)
	for i := range 10 * reviewsInBurst {
		r.get("/metrics", fmt.Sprintf("Bearer %d", i))
	}
	if r.count != reviewsInBurst {
		t.Errorf("%d reviews at once, want %d", r.count, reviewsInBurst)
	}
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusServiceUnavailable {
		t.Errorf("status %d beyond the rate, want 503", got)
	}
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusOK {
		t.Errorf("status %d a second later, want 200", got)
	}
}

// The API server accepts requests and never answers. Each request to the fleet has an answer in time, whatever their number, and few
// reviews are in flight.
func TestReviewsThatHangEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight atomic.Int32
		hang := roundTripper(func(req *http.Request) (*http.Response, error) {
			inFlight.Add(1)
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://control", Transport: hang, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		r := &reviews{reviewer: newReviewer(client, clock.RealClock{})}
		start := time.Now()
		var requests sync.WaitGroup
		for i := range 30 {
			requests.Go(func() {
				if got := r.get("/metrics", fmt.Sprint("Bearer ", i)); got != http.StatusServiceUnavailable {
					t.Errorf("status %d, want 503", got)
				}
			})
		}
		synctest.Wait()
		if n := inFlight.Load(); n != reviewsAtOnce {
			t.Errorf("%d reviews are in flight, want %d", n, reviewsAtOnce)
		}
		requests.Wait()
		if lasted := time.Since(start); lasted != reviewTimeout {
			t.Errorf("answers after %s, want %s", lasted, reviewTimeout)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
