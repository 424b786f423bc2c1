//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// twice starts a second process of a replica. It gets no slots while the first one lives, and the
// first one keeps its slots.
func twice(t *testing.T, b *bed, start func(ctx context.Context, replica string) (process string, err error), d time.Duration) {
	name, before := b.worker(t)
	second, err := start(b.ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	var view harness.SlotsView
	if err := harness.Eventually(b.ctx, second+" answers", func(ctx context.Context) (err error) {
		view, err = b.lab.Slots(ctx, second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if view.Session == "" || view.Session == before {
		t.Fatalf("%s is session %q; expected another one than %s, which is %s", second, view.Session, name, before)
	}
	for begun := time.Now(); time.Since(begun) < d; b.wait(t, 200*time.Millisecond) {
		if view, err = b.lab.Slots(b.ctx, second); err != nil {
			t.Fatal(err)
		}
		if len(view.Here) > 0 {
			t.Fatalf("%s has got slots while %s lives: %v", second, name, view.Here)
		}
		if now, err := b.session(b.ctx, name); err != nil || now != before {
			t.Fatalf("the session of %s was %s, and is %q next to a second process: %v", name, before, now, err)
		}
	}
	b.do(t, second, harness.Kill)
	if now := b.atWork(t, name); now != before {
		t.Fatalf("the session of %s was %s, and is %s after a second process", name, before, now)
	}
}

// worker returns a working replica at random.
func (b *bed) worker(t *testing.T) (replica, session string) {
	t.Helper()
	names, err := b.lab.Replicas(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	if err := harness.Eventually(b.ctx, "a replica is at work", func(ctx context.Context) error {
		var errs []error
		for _, replica = range names {
			var err error
			if session, err = b.isAtWork(ctx, replica); err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Fatal(err)
	}
	return replica, session
}

// atWork waits until a replica is at work, and returns its session. One whose process has ended is
// started at once: here a replica has in minutes the faults of years, and the back-off of its
// restarts would grow to 5 min.
func (b *bed) atWork(t *testing.T, replica string) (session string) {
	t.Helper()
	if err := harness.Eventually(b.ctx, replica+" is at work", func(ctx context.Context) (err error) {
		if err := b.lab.SkipBackoff(ctx, replica); err != nil {
			return err
		}
		session, err = b.isAtWork(ctx, replica)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return session
}

// isAtWork returns the session of a replica that holds slots, has all of them open and may act;
// else an error.
func (b *bed) isAtWork(ctx context.Context, replica string) (session string, err error) {
	view, err := b.lab.Slots(ctx, replica)
	if err != nil {
		return "", err
	}
	holder, err := b.session(ctx, replica)
	if err != nil {
		return "", err
	}
	if len(view.Here) == 0 || view.Closed() > 0 || view.Suspended || view.Session != holder {
		return "", fmt.Errorf("%s is session %s with %d slots, %d of them not open (suspended: %t), and its Lease is held by %q",
			replica, view.Session, len(view.Here), view.Closed(), view.Suspended, holder)
	}
	return holder, nil
}

// session returns the holder of the session Lease of a replica, "" for none.
func (b *bed) session(ctx context.Context, replica string) (string, error) {
	lease, err := b.sessionLease(ctx, replica)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

func (b *bed) sessionLease(ctx context.Context, replica string) (*coordinationv1.Lease, error) {
	return b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx,
		member.SessionLeaseName(harness.FleetName, replica), metav1.GetOptions{})
}
