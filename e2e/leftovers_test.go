//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// TestLeftoversOfFailedCreatesAreRemoved has creates fail after the cloud has made a network interface and a disk, deletes the
// machine, which never had a VM, and expects nothing of it to remain at the cloud.
func TestLeftoversOfFailedCreatesAreRemoved(t *testing.T) {
	t.Parallel()
	const zone = "sim-3i" // of this test alone, in this lab
	s := newSpace(t, shared(t), "leftovers", fmt.Sprintf(`{"zone":%q}`, zone))
	end := s.fault(zone, cloudapi.FaultPartial)
	s.deploy("pool", 1)
	s.fails("pool", 1, driver.Internal, "")
	if remaining, err := s.lab.Cloud.Leftovers(t.Context(), s.name); err != nil || len(remaining) == 0 {
		t.Fatalf("after a create that failed part-way: expected a network interface and a disk at the cloud, got %v, %v", remaining, err)
	}

	s.remove("machinedeployments", "pool")
	s.eventually("the left-overs are removed", func(ctx context.Context) error {
		remaining, err := s.lab.Cloud.Leftovers(ctx, s.name)
		if err == nil && len(remaining) > 0 {
			err = fmt.Errorf("%d are left: %+v", len(remaining), remaining)
		}
		return err
	})
	end()
	s.gone()
}
