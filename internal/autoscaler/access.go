package autoscaler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

const (
	// reviewFresh is for how long an answer of the API server is valid, and reviewStale for how long
	// while it does not answer.
	reviewFresh = time.Minute
	reviewStale = 10 * time.Minute
	// reviewTimeout bounds one review, and rememberedReviews the answers that are kept.
	reviewTimeout     = 3 * time.Second
	rememberedReviews = 1000
)

// access reviews which clients may scale. It is safe for concurrent use.
type access struct {
	reviews authorizationclient.SubjectAccessReviewsGetter
	clock   clock.PassiveClock

	turns pacing.Turns[identity]
	mu    sync.Mutex
	last  *lru.Cache
}

// review is an answer of the API server.
type review struct {
	allowed bool
	at      time.Time
}

func newAccess(reviews authorizationclient.SubjectAccessReviewsGetter, c clock.PassiveClock) *access {
	return &access{reviews: reviews, clock: c, last: lru.New(rememberedReviews)}
}

// check returns an error if a client may not scale in its namespace, or if that is not known.
func (a *access) check(ctx context.Context, who identity) error {
	if last, ok := a.remembered(who); ok && a.clock.Since(last.at) < reviewFresh {
		return answered(last, who)
	}
	unlock, err := a.turns.Lock(ctx, who)
	if err != nil {
		return status.FromContextError(err).Err()
	}
	defer unlock()
	last, ok := a.remembered(who) // another call may have had it reviewed
	if ok && a.clock.Since(last.at) < reviewFresh {
		return answered(last, who)
	}
	allowed, err := a.review(ctx, who)
	if err != nil {
		if ok && a.clock.Since(last.at) < reviewStale {
			return answered(last, who)
		}
		return status.Errorf(codes.Unavailable,
			"the API server of the control cluster does not report whether %s may scale: %v; try again", who.user(), err)
	}
	last = review{allowed: allowed, at: a.clock.Now()}
	a.mu.Lock()
	a.last.Add(who, last)
	a.mu.Unlock()
	return answered(last, who)
}

func answered(last review, who identity) error {
	if last.allowed {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s may not %s machinedeployments.%s in namespace %s; bind a Role with this verb to it",
		who.user(), v1alpha1.VerbAutoscale, v1alpha1.GroupName, who.namespace)
}

func (a *access) remembered(who identity) (last review, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, known := a.last.Get(who)
	if !known {
		return review{}, false
	}
	last, ok = answer.(review)
	return last, ok
}

// review asks the API server, within reviewTimeout.
func (a *access) review(ctx context.Context, who identity) (allowed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	answer, err := a.reviews.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.user(), Groups: who.groups(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: who.namespace, Verb: v1alpha1.VerbAutoscale, Group: v1alpha1.GroupName, Resource: "machinedeployments",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review the access of %s: %w", who.user(), err)
	}
	return answer.Status.Allowed, nil
}
