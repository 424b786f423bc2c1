//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
)

// noticed is within which time everybody has seen a Lease that was changed by hand.
const noticed = 5 * time.Second

// emptied is a patch that clears the holder of a Lease.
const emptied = `{"spec":{"holderIdentity":null}}`

// loseSession deletes the session Lease of a replica, or empties it. Its process ends as soon as it sees that, and the next
// one begins a session of its own.
func loseSession(t *testing.T, b *bed, take func(t *testing.T, lease string)) {
	name, before := b.worker(t)
	take(t, member.SessionLeaseName(harness.FleetName, name))
	if err := harness.Eventually(b.ctx, name+" has a new session", func(ctx context.Context) error {
		now, err := b.session(ctx, name)
		if err == nil && (now == "" || now == before) {
			return fmt.Errorf("its Lease is held by %q", now)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b.ready(t, name)
}

// slotLeasesDeleted deletes the Leases of a few slots. Their holders stop as soon as they see it, and the leader makes them
// again; what is new cannot be acquired for 15 s.
func slotLeasesDeleted(t *testing.T, b *bed) {
	for range 5 {
		slot := b.random.IntN(slots)
		b.recorder.reset(slot, time.Now(), time.Now().Add(noticed))
		b.deleteLease(t, b.slotLease(slot))
	}
}

func (b *bed) slotLease(slot int) string { return member.SlotLeaseName(harness.FleetName, slot, slots) }

// deleteLease does so by hand.
func (b *bed) deleteLease(t *testing.T, name string) {
	t.Helper()
	if err := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// patchLease changes a Lease by hand.
func (b *bed) patchLease(t *testing.T, name, patch string) *coordinationv1.Lease {
	t.Helper()
	lease, err := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Patch(b.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
