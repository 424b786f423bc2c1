package session

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// Every Lease of the fleet can be taken after its number of transitions was set by hand to the
// largest that there is.
func TestALeaseWithTheLargestNumberOfTransitionsIsAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		vacate := func(name string) {
			if !server.Edit(name, func(l *coordinationv1.Lease) {
				most := int32(math.MaxInt32)
				l.Spec.HolderIdentity, l.Spec.LeaseTransitions = nil, &most
			}) {
				t.Fatalf("%s is not there", name)
			}
		}
		taken := func(name, session string) {
			t.Helper()
			if l := server.Leases()[name]; member.Holder(l) != session || member.Transitions(l) != 1 {
				t.Errorf("%s: want holder %s and 1 transition, got %q and %d", name, session, member.Holder(l), member.Transitions(l))
			}
		}

		slot := member.SlotLeaseName("fleet", 3, fleetSlots)
		vacate(slot)
		vacate("fleet-leader")
		time.Sleep(20 * time.Second)
		taken(slot, "fleet-0_abcde")
		taken("fleet-leader", "fleet-0_abcde")
		wantAll(t, 0, a)

		a.kill()
		if err := <-a.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a process that was killed ended with %v", err)
		}
		vacate("fleet-session-fleet-0")
		b := begin(t, server, "fleet-0", func(s *protocol.Settings) { s.Session = "fleet-0_fghij" })
		wantAll(t, time.Minute, b)
		taken("fleet-session-fleet-0", "fleet-0_fghij")
	})
}
