package serving

import (
	"context"
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

	"github.com/google/go-cmp/cmp"
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

// reviews is an API server that knows the token of a reader, who may get /metrics, and that of a
// user without rights.
type reviews struct {
	*Reviewer

	clock  *clocktesting.FakePassiveClock
	count  int
	served int // requests that were passed on
	away   bool
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
		answer.Status.Authenticated = asked.Spec.Token == "reader" && !r.revoked || asked.Spec.Token == "unauthorized"
		answer.Status.User = userOf(asked.Spec.Token)
		return answer
	}))
	client.PrependReactor("create", "subjectaccessreviews", react(func(o runtime.Object) runtime.Object {
		asked, _ := o.(*authorizationv1.SubjectAccessReview)
		answer := asked.DeepCopy()
		user := userOf("reader")
		answer.Status.Allowed = cmp.Equal(asked.Spec, authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"metrics"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		})
		return answer
	}))
	r.Reviewer = NewReviewer(client, r.clock)
	return r
}

// userOf returns all that the API server knows of the user of a token. Its authorizers may decide
// by any of it.
func userOf(token string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{
		Username: "user of " + token, UID: "uid-" + token, Groups: []string{"people"},
		Extra: map[string]authenticationv1.ExtraValue{"scopes": {"metrics"}},
	}
}

// get returns the status of a request with a header Authorization.
func (r *reviews) get(path, authorization string) int {
	req := httptest.NewRequest(http.MethodGet, path, nil)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	r.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.served++ })).ServeHTTP(w, req)
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
		{"/metrics", "Bearer " + strings.Repeat("x", maxBearer), 401},
		{"/metrics", "Bearer " + strings.Repeat("x", maxBearer+1), 401},
		{"/metrics", "Bearer unauthorized", 403},
		{"/metrics", "Bearer reader", 200},
		{"/debug/slots", "Bearer reader", 403},
	} {
		if got := r.get(tc.path, tc.authorization); got != tc.want {
			t.Errorf("%s with %.20q: status %d, want %d", tc.path, tc.authorization, got, tc.want)
		}
	}
	if r.count != 5 {
		t.Errorf("%d tokens were reviewed, want 5: what is no token of a possible length is refused at once", r.count)
	}
	if r.served != 1 {
		t.Errorf("%d requests were served, want 1", r.served)
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

// A client without access sends a different token with each request. What is kept is bounded, and
// has the reader's answer, which is valid while the API server does not answer.
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

// The last answer about a reader is the only one that is kept, and so it is the one that is valid
// while the API server does not answer.
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
		r.away = true
		r.clock.SetTime(r.clock.Now().Add(reviewFresh))
		if got := r.get("/metrics", "Bearer reader"); got != tc.want {
			t.Errorf("token revoked: %t, status %d while the API server is away, want %d", tc.revoked, got, tc.want)
		}
		r.away = false
		if kept := r.allowed.Len() + r.refused.Len(); kept != 1 {
			t.Errorf("token revoked: %t, %d answers are kept, want 1", tc.revoked, kept)
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

// A client floods with unknown tokens. It delays no reader, also not itself with a token that was
// revoked, and no login.
func TestUnknownTokensDelayNeitherReadersNorLogins(t *testing.T) {
	r := newReviews(t)
	flood := func() {
		for i := range 10 * reviewsInBurst {
			r.get("/metrics", fmt.Sprintf("Bearer %d at %s", i, r.clock.Now()))
		}
	}
	flood()
	for range 2 { // asked, and remembered
		if user, got, err := r.ReviewLogin(t.Context(), "reader", "get", "/metrics"); user != "user of reader" || got != http.StatusOK {
			t.Errorf("a login: user %q, status %d, %v, want 200 for the user of the reader", user, got, err)
		}
	}
	for revoked, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		r.revoked = revoked == 1
		r.clock.SetTime(r.clock.Now().Add(reviewFresh))
		flood()
		if got := r.get("/metrics", "Bearer reader"); got != want {
			t.Errorf("token revoked: %t, status %d, want %d", r.revoked, got, want)
		}
	}
}

// An answer is valid for longer while the API server does not answer, and not because a client has
// requested too many reviews.
func TestAnExhaustedBudgetExtendsNoAnswer(t *testing.T) {
	r := newReviews(t)
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusOK {
		t.Fatalf("status %d, want 200", got)
	}
	r.clock.SetTime(r.clock.Now().Add(reviewFresh))
	for r.known.rate.TryAccept() { // by as many other known tokens
	}
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusServiceUnavailable || r.count != 1 {
		t.Errorf("status %d after %d reviews, want 503 after 1", got, r.count)
	}
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusOK {
		t.Errorf("status %d a second later, want 200", got)
	}
}

// All reviews in flight hang. An older answer is valid for longer only if the API server answers no
// other one meanwhile.
func TestReviewsInFlightExtendAnAnswerOnlyDuringAnAbsence(t *testing.T) {
	for answers, want := range map[bool]int{false: http.StatusOK, true: http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			r := newReviews(t)
			r.get("/metrics", "Bearer reader")
			r.clock.SetTime(r.clock.Now().Add(reviewFresh))
			for range reviewsAtOnce {
				r.known.concurrent <- struct{}{}
			}
			got := make(chan int)
			go func() { got <- r.get("/metrics", "Bearer reader") }()
			synctest.Wait()
			if answers {
				r.get("/metrics", "Bearer another")
			}
			if status := <-got; status != want {
				t.Errorf("the API server answers others: %t, status %d, want %d", answers, status, want)
			}
		})
	}
}

// The API server accepts requests and never answers. Each request to the fleet has an answer in
// time, regardless of their number, and few reviews are in flight.
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
		r := &reviews{Reviewer: NewReviewer(client, clock.RealClock{})}
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

// A review that has ended leaves no timer that runs until its timeout.
func TestReviewsThatHaveEndedKeepNoContext(t *testing.T) {
	var sent *http.Request
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://control",
		QPS:  -1,
		Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			sent = req
			return nil, errors.New("no answer")
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &reviews{Reviewer: NewReviewer(client, clock.RealClock{})}
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusServiceUnavailable || sent == nil {
		t.Fatalf("status %d, and the request %v; want 503 after a request", got, sent)
	}
	if err := sent.Context().Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("the context of a review that has ended: %v, want it canceled", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
