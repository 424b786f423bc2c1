package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// reviews is an API server that knows the token of a reader, who may get /metrics, and that of a stranger.
type reviews struct {
	*reviewer

	clock *clocktesting.FakePassiveClock
	count int
	away  bool
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
		answer.Status.Authenticated = asked.Spec.Token == "reader" || asked.Spec.Token == "stranger"
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

func TestManyTokensUseBoundedMemory(t *testing.T) {
	r := newReviews(t)
	for i := range 3 * rememberedReviews {
		r.get("/metrics", fmt.Sprintf("Bearer %d", i))
	}
	if len(r.known) > rememberedReviews {
		t.Errorf("%d answers are kept, want at most %d", len(r.known), rememberedReviews)
	}
}

func TestReviewsInFlightAreBounded(t *testing.T) {
	r := newReviews(t)
	for range reviewsAtOnce {
		r.concurrent <- struct{}{}
	}
	if got := r.get("/metrics", "Bearer reader"); got != http.StatusServiceUnavailable || r.count != 0 {
		t.Errorf("status %d after %d reviews, want 503 without one", got, r.count)
	}
}
