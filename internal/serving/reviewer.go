package serving

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
)

const (
	// reviewFresh is for how long an answer of the API server is valid. A reader that loses its access
	// keeps it for that long.
	reviewFresh = time.Minute
	// reviewStale is for how long it is valid while the API server does not answer: that is when
	// metrics are needed.
	reviewStale = 10 * time.Minute
	// reviewTimeout bounds one review.
	reviewTimeout = 5 * time.Second
	// reviewsAtOnce bounds the reviews in flight, reviewsPerSecond and reviewsInBurst their rate, of
	// each budget, and rememberedReviews the answers that are kept: a client without access can send a
	// different token with each request, and the requests of the reviews are among those of the fleet
	// for the API server.
	reviewsAtOnce     = 4
	reviewsPerSecond  = 10
	reviewsInBurst    = 50
	rememberedReviews = 1000
	// maxBearer is the length in bytes of the longest token that is reviewed. Tokens of
	// ServiceAccounts have about 1 kB.
	maxBearer = 16 << 10
)

// Reviewer authenticates and authorizes requests by reviews of the control cluster's API server.
type Reviewer struct {
	client kubeclient.Interface
	clock  clock.PassiveClock

	// Reviews of tokens that were allowed the last time, those of logins, and all others have separate
	// budgets, so that a flood of unknown tokens delays neither readers nor logins.
	known, logins, others budget
	// answers is how many reviews the API server has answered.
	answers atomic.Uint64

	// allowed and refused have the last answers. They are apart, so that clients without access do not
	// displace those that have it.
	allowed, refused *lru.Cache
}

// budget bounds reviews.
type budget struct {
	concurrent chan struct{}
	rate       flowcontrol.PassiveRateLimiter
}

func newBudget(c clock.PassiveClock) budget {
	return budget{
		concurrent: make(chan struct{}, reviewsAtOnce),
		rate:       flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reviewsPerSecond, reviewsInBurst, c),
	}
}

// errBudget is the error of a review that was not requested because of the Reviewer's bounds. It
// says nothing about the API server: no older answer is valid for longer because of it.
var errBudget = errors.New("too many reviews have been requested")

// review is an answer: the user that bears the token, an HTTP status, and when it was given.
type review struct {
	user   string
	status int
	at     time.Time
}

// NewReviewer returns a Reviewer that asks the control cluster of the client.
func NewReviewer(client kubeclient.Interface, c clock.PassiveClock) *Reviewer {
	return &Reviewer{
		client: client, clock: c, known: newBudget(c), logins: newBudget(c), others: newBudget(c),
		allowed: lru.New(rememberedReviews), refused: lru.New(rememberedReviews),
	}
}

// guard returns a handler that serves the requests that the control cluster's RBAC allows for
// nonResourceURLs.
func (r *Reviewer) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		status, err := r.status(req)
		if err != nil {
			klog.FromContext(req.Context()).V(2).Info("Request could not be reviewed", "path", req.URL.Path, "err", err)
		}
		switch status {
		case http.StatusOK:
			next.ServeHTTP(w, req)
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "expected a bearer token that the API server of the control cluster knows; see --metrics-authorization", status)
		case http.StatusForbidden:
			http.Error(w, "this user may not "+strings.ToLower(req.Method)+" this path; bind a ClusterRole with it in nonResourceURLs", status)
		default:
			http.Error(w, "the API server of the control cluster does not say whether this request may be sent; try again", status)
		}
	})
}

// status returns the HTTP status of a request: OK when it is allowed.
func (r *Reviewer) status(req *http.Request) (int, error) {
	token, isBearer := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		return http.StatusUnauthorized, nil
	}
	_, status, err := r.Review(req.Context(), strings.TrimSpace(token), strings.ToLower(req.Method), req.URL.Path)
	return status, err
}

// Review returns the user that bears a token, and the HTTP status for that user: OK when the
// control cluster's RBAC allows the verb for the path, Unauthorized or Forbidden. Errors: the API
// server does not answer; the status is that of its last answer, or ServiceUnavailable. Or too many
// reviews have been requested; the status is ServiceUnavailable.
func (r *Reviewer) Review(ctx context.Context, token, verb, path string) (user string, status int, err error) {
	return r.reviewed(ctx, &r.others, token, verb, path)
}

// ReviewLogin is Review for a login, which other requests with unknown tokens do not delay. The
// caller bounds the rate of logins.
func (r *Reviewer) ReviewLogin(ctx context.Context, token, verb, path string) (user string, status int, err error) {
	return r.reviewed(ctx, &r.logins, token, verb, path)
}

// reviewed returns the answer that is kept if it is valid, or else asks, by the budget of known
// tokens, or that of others.
func (r *Reviewer) reviewed(ctx context.Context, others *budget, token, verb, path string) (user string, status int, err error) {
	if token == "" || len(token) > maxBearer {
		return "", http.StatusUnauthorized, nil
	}
	key := sha256.Sum256([]byte(verb + " " + path + "\n" + token))
	now := r.clock.Now()
	last := r.remembered(key)
	if now.Sub(last.at) < reviewFresh {
		return last.user, last.status, nil
	}
	of := others
	if last.status == http.StatusOK {
		of = &r.known
	}
	user, status, err = r.review(ctx, of, token, verb, path)
	if err != nil {
		if now.Sub(last.at) < reviewStale && !errors.Is(err, errBudget) {
			return last.user, last.status, err
		}
		return "", http.StatusServiceUnavailable, err
	}
	r.remember(key, review{user: user, status: status, at: now})
	return user, status, nil
}

// remembered returns the last answer; if none is kept, the zero review, which is not valid at any
// time.
func (r *Reviewer) remembered(key [sha256.Size]byte) (last review) {
	for _, answers := range []*lru.Cache{r.allowed, r.refused} {
		if answer, known := answers.Get(key); known {
			last, _ = answer.(review)
			return last
		}
	}
	return review{}
}

// remember keeps an answer in place of the last one.
func (r *Reviewer) remember(key [sha256.Size]byte, last review) {
	keep, other := r.refused, r.allowed
	if last.status == http.StatusOK {
		keep, other = r.allowed, r.refused
	}
	other.Remove(key)
	keep.Add(key, last)
}

// review reviews token and access, within reviewTimeout. Errors: the API server does not answer, or
// errBudget.
func (r *Reviewer) review(ctx context.Context, of *budget, token, verb, path string) (name string, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	if !of.rate.TryAccept() {
		return "", 0, errBudget
	}
	answers := r.answers.Load()
	select {
	case of.concurrent <- struct{}{}:
		defer func() { <-of.concurrent }()
	case <-ctx.Done():
		if r.answers.Load() != answers {
			return "", 0, fmt.Errorf("%w: the API server answers, but those in flight have not ended in time", errBudget)
		}
		return "", 0, fmt.Errorf("too many reviews are in flight: %w", ctx.Err())
	}
	who, err := r.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", 0, fmt.Errorf("review a token: %w", err)
	}
	r.answers.Add(1)
	if !who.Status.Authenticated {
		return "", http.StatusUnauthorized, nil
	}
	user := who.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	may, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", 0, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	if !may.Status.Allowed {
		return user.Username, http.StatusForbidden, nil
	}
	return user.Username, http.StatusOK, nil
}
