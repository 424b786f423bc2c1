package deletion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// attempts is how often a reservation is tried when other replicas write the Lease meanwhile. Each
// failed one is another's success, so that some suffice for the workers of a namespace; a caller
// that still fails tries again later.
const attempts = 5

// errUnknown means that limits are not known.
var errUnknown = errors.New("the annotations of Namespaces, which limit deletions, are not known")

// BudgetNamespaces has the annotations of Namespaces.
type BudgetNamespaces interface {
	// Known reports whether the annotations are known.
	Known() bool
	Annotation(namespace, key string) (value string, ok bool)
}

// Budget has the budgets of all namespaces. All fields are required. It is safe for concurrent use.
type Budget struct {
	Namespaces BudgetNamespaces
	// Leases reads and writes in the control cluster, without a cache.
	Leases coordinationclient.LeasesGetter
	// Default is the limit of Namespaces without the annotation; 0 means no limit.
	Default int
	Clock   clock.PassiveClock
}

// Grant has the deletions that may begin.
type Grant struct {
	// Limit is how many there may be within an hour; 0 means any number.
	Limit int
	// Reserved are the keys of the deletions that may begin.
	Reserved map[string]bool
	// Next is the time until more may begin; 0 if all may.
	Next time.Duration
}

// grantOf returns a Grant of all keys.
func grantOf(limit int, keys []string) Grant {
	g := Grant{Limit: limit, Reserved: make(map[string]bool, len(keys))}
	for _, key := range keys {
		g.Reserved[key] = true
	}
	return g
}

// Exhausted returns a clause for people about the deletions that are refused.
func (g Grant) Exhausted() string {
	return fmt.Sprintf("the deletion budget of the Namespace is exhausted: within an hour at most %d unhealthy machines are replaced and "+
		"orphans deleted (annotation %s, else --safety-max-deletions-per-hour)",
		g.Limit, v1alpha1.AnnotationMaxDeletions)
}

// Ignored returns why the annotation of a Namespace is ignored; "" if it is not.
func (b *Budget) Ignored(namespace string) string {
	_, ignored := b.limit(namespace)
	return ignored
}

func (b *Budget) limit(namespace string) (limit int, ignored string) {
	text, ok := b.Namespaces.Annotation(namespace, v1alpha1.AnnotationMaxDeletions)
	if !ok {
		return b.Default, ""
	}
	limit, err := receipt.ParseLimit(text)
	if err != nil {
		return b.Default, fmt.Sprintf("The annotation %s of the Namespace is ignored, and --safety-max-deletions-per-hour=%d applies: %v",
			v1alpha1.AnnotationMaxDeletions, b.Default, err)
	}
	return limit, ""
}

// Reserve reserves deletions in a namespace, by keys that name each deletion the same whenever it
// is tried, as many as the limit allows, in their order. Errors: the annotations of Namespaces are
// not known, or the Lease could not be read or written; then none may begin.
func (b *Budget) Reserve(ctx context.Context, namespace string, keys []string) (Grant, error) {
	if !b.Namespaces.Known() {
		return Grant{}, errUnknown
	}
	limit, _ := b.limit(namespace)
	if limit == 0 || len(keys) == 0 {
		return grantOf(limit, keys), nil
	}
	grant, err := b.try(ctx, namespace, keys, limit)
	for again := 1; again < attempts && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)); again++ {
		grant, err = b.try(ctx, namespace, keys, limit)
	}
	if err != nil {
		return Grant{}, fmt.Errorf("reserve deletions on Lease %s/%s: %w", namespace, v1alpha1.LeaseDeletions, err)
	}
	return grant, nil
}

// try reserves deletions once. Errors: as Reserve, and a write of another process meanwhile.
func (b *Budget) try(ctx context.Context, namespace string, keys []string, limit int) (Grant, error) {
	leases := b.Leases.Leases(namespace)
	lease, err := leases.Get(ctx, v1alpha1.LeaseDeletions, metav1.GetOptions{})
	exists := err == nil
	if apierrors.IsNotFound(err) {
		lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.LeaseDeletions}}, nil
	}
	if err != nil {
		return Grant{}, err
	}
	stored, err := receipt.ParseLedger(lease.Annotations[v1alpha1.AnnotationDeletions])
	if err != nil {
		return Grant{}, fmt.Errorf("annotation %s: %w", v1alpha1.AnnotationDeletions, err)
	}
	now := b.Clock.Now()
	next, refused, free := stored.Reserve(now, keys, limit)
	grant := grantOf(limit, keys)
	for _, key := range refused {
		delete(grant.Reserved, key)
		grant.Next = free.Sub(now)
	}
	if maps.Equal(stored, next) {
		return grant, nil
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationDeletions, next.Text())
	if exists {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	} else {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return grant, err
}
