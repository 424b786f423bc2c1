package orphans

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// ledger keeps the deletions of the last hour on a Lease, where the next leader finds them. What
// this process has reserved counts also if the Lease is deleted or restored.
type ledger struct {
	leases coordinationclient.LeasesGetter
	key    types.NamespacedName
	clock  clock.PassiveClock
	token  func() string

	mu   pacing.Mutex
	last decide.Ledger // as this process last wrote it
	at   time.Time     // when that was
	seen sighting      // what it last read
}

// reserve reserves the deletion of suspects, or returns why that is not possible. before are those
// that were reserved already, and are reserved again in either case: their deletion was decided,
// and did not take place or has not ended. Errors: the Lease could not be read or written, or was
// written by another process meanwhile; then nothing is reserved. unread are suspects that may be
// orphans, too: they count for the limit as if they were, and are not reserved.
func (l *ledger) reserve(
	ctx context.Context, namespace string, wanted, unread []decide.Suspect, limit int,
) (before map[decide.Key]bool, why string, err error) {
	if err := l.mu.LockContext(ctx); err != nil {
		return nil, "", fmt.Errorf("wait for other reservations: %w", err)
	}
	defer l.mu.Unlock()
	leases := l.leases.Leases(l.key.Namespace)
	lease, err := leases.Get(ctx, l.key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("read Lease %s: %w", l.key, err)
	}
	exists := err == nil
	if !exists {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}}
	}
	now, is, err := l.current(lease)
	if err != nil {
		return nil, "", err
	}
	before = map[decide.Key]bool{}
	var again []decide.Suspect
	for _, suspect := range wanted {
		if is.Has(namespace, suspect.Key()) {
			before[suspect.Key()] = true
			again = append(again, suspect)
		}
	}
	next, why := is.Reserve(namespace, slices.Concat(wanted, unread), limit)
	switch {
	case why == "":
		next, _ = is.Reserve(namespace, wanted, limit) // a part of what the limit allows
	case len(unread) > 0:
		why += fmt.Sprintf("; %d were not checked in time, and count", len(unread))
	}
	if why != "" {
		if len(again) == 0 {
			return before, why, nil
		}
		next, _ = is.Reserve(namespace, again, limit) // they are deleted now, and count from now on
	}
	next.Write = l.token()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationOrphanDeletions, next.Text())
	if exists {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	} else {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, "", fmt.Errorf("reserve deletions on Lease %s: %w", l.key, err)
	}
	l.last, l.at, l.seen = next, now, sighting{next.Write, now}
	return before, why, nil
}

// current returns the reservations as of now: those on the Lease, whose age grows only while this
// process observes the same text, and those that this process has created.
func (l *ledger) current(lease *coordinationv1.Lease) (now time.Time, is decide.Ledger, err error) {
	now = l.clock.Now()
	stored, err := decide.ParseLedger(lease.Annotations[v1alpha1.AnnotationOrphanDeletions])
	if err != nil {
		return now, is, fmt.Errorf("annotation %s of Lease %s: %w", v1alpha1.AnnotationOrphanDeletions, l.key, err)
	}
	if l.seen.write != stored.Write || l.seen.at.IsZero() {
		l.seen = sighting{stored.Write, now}
	}
	return now, stored.Aged(now.Sub(l.seen.at)).With(l.last.Aged(now.Sub(l.at))), nil
}
