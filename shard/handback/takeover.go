package handback

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// takeOver returns how long a session Lease must be unchanged before its session counts as dead:
// the longest time that the leader Lease or one of the session Leases records, because a session
// renews within its own; the default of --lease-take-over if none records any. Errors: a record
// that is not a positive duration, and errors of the API server.
func takeOver(
	ctx context.Context, leases coordinationclient.LeaseInterface, fleet string, sessions []coordinationv1.Lease,
) (time.Duration, error) {
	recorded := sessions
	leader, err := leases.Get(ctx, member.LeaderLeaseName(fleet), metav1.GetOptions{})
	switch {
	case err == nil:
		recorded = append([]coordinationv1.Lease{*leader}, sessions...)
	case !apierrors.IsNotFound(err):
		return 0, fmt.Errorf("read the leader Lease %s: %w", member.LeaderLeaseName(fleet), err)
	}
	var longest time.Duration
	for i := range recorded {
		value, ok := recorded[i].Annotations[v1alpha1.AnnotationTakeOver]
		if !ok {
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return 0, fmt.Errorf(
				"lease %s, annotation %s: expected a positive duration like 15s, got %q; set the fleet's --lease-take-over there and try again",
				recorded[i].Name, v1alpha1.AnnotationTakeOver, value,
			)
		}
		longest = max(longest, d)
	}
	if longest == 0 {
		longest = member.DefaultConfig().TakeOver
	}
	return longest, nil
}
