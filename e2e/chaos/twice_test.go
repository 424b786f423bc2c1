//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
)

// slotsView is what /debug/slots says, as far as it is looked at here.
type slotsView struct {
	Session   string
	Suspended bool
	Here      []struct{ Slot int }
}

// twice starts a second process of a replica. It gets nothing while the first one lives, and that one keeps what it has.
func twice(t *testing.T, b *bed, start func(ctx context.Context, replica string) (process string, err error), d time.Duration) {
	name := b.replica(t)
	before := b.atWork(t, name)
	second, err := start(b.ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	var view slotsView
	if err := harness.Eventually(b.ctx, second+" answers", func(ctx context.Context) error { return b.lab.DebugSlots(ctx, second, &view) }); err != nil {
		t.Fatal(err)
	}
	if view.Session == "" || view.Session == before {
		t.Fatalf("%s is session %q; expected another one than %s, which is %s", second, view.Session, name, before)
	}
	for begun := time.Now(); time.Since(begun) < d; b.wait(t, 200*time.Millisecond) {
		view = slotsView{}
		if err := b.lab.DebugSlots(b.ctx, second, &view); err != nil {
			t.Fatal(err)
		}
		if len(view.Here) > 0 {
			t.Fatalf("%s has got slots while %s lives: %v", second, name, view.Here)
		}
		if now := b.session(t, name); now != before {
			t.Fatalf("the session of %s was %s, and is %q beside a second process", name, before, now)
		}
	}
	b.do(t, second, harness.Kill)
	if now := b.atWork(t, name); now != before {
		t.Fatalf("the session of %s was %s, and is %s after a second process", name, before, now)
	}
}

// atWork waits until a replica holds slots and may act, and returns its session.
func (b *bed) atWork(t *testing.T, replica string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var view slotsView
	if err := harness.Eventually(ctx, replica+" is at work", func(ctx context.Context) error {
		view = slotsView{}
		if err := b.lab.DebugSlots(ctx, replica, &view); err != nil {
			return err
		}
		if session := b.session(t, replica); len(view.Here) == 0 || view.Suspended || view.Session != session {
			return fmt.Errorf("it is session %s with %d slots (suspended: %t), and its Lease is held by %q", view.Session, len(view.Here), view.Suspended, session)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return view.Session
}

// session returns who holds the session Lease of a replica, "" for nobody.
func (b *bed) session(t *testing.T, replica string) string {
	t.Helper()
	name := member.SessionLeaseName(harness.FleetName, replica)
	lease, err := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(b.ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
