//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// TestNamespaceIsServedAgain creates the first MachineDeployment of a namespace that has Leases, and in which nothing has changed
// for longer than the wait for an expired holder: Leases that were released, and those of a manager that has died.
func TestNamespaceIsServedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, holder string
		slot         int
	}{
		{"given-up", "", slotOfGivenUp},
		{"expired", "mcm-that-died", slotOfExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, holder := fleetSpace(t, c.name, c.slot), c.holder
			for _, lease := range []string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
				_, err := s.lab.Control.CoordinationV1().Leases(s.name).Create(t.Context(), &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: lease},
					Spec: coordinationv1.LeaseSpec{
						HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)),
						AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
					},
				}, metav1.CreateOptions{})
				s.must(err)
			}
			wait(t, 20*time.Second)
			for _, lease := range s.leasesOfMCM(t.Context()) {
				if got := member.Holder(&lease); got != holder {
					t.Fatalf("Lease %s of a namespace without roots is held by %q, want %q", lease.Name, got, holder)
				}
			}

			d := s.deploy("pool", 1)
			s.eventually("the fleet holds the Leases", func(ctx context.Context) error {
				leases, err := s.lab.Control.CoordinationV1().Leases(s.name).List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, lease := range leases.Items {
					if got := member.Holder(&lease); !strings.Contains(got, harness.FleetName) {
						return fmt.Errorf("lease %s is held by %q", lease.Name, got)
					}
				}
				return nil
			})
			s.running("pool", 1)
			events, err := s.lab.Control.EventsV1().Events(s.name).List(t.Context(), metav1.ListOptions{})
			s.must(err)
			for _, e := range events.Items {
				if e.Regarding.UID == d.GetUID() && e.Reason == v1alpha1.EventNotAlone {
					t.Errorf("there is an Event %s although no other controller serves the namespace: %s", e.Reason, e.Note)
				}
			}
			s.remove("machinedeployments", "pool")
			s.gone()
		})
	}
}
