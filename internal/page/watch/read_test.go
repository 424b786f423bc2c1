package watch

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// TestListsThatEndWhileItReads: a state for which the leader Lease was read too early reports no
// trouble, such as that no session leads, and is not complete.
func TestListsThatEndWhileItReads(t *testing.T) {
	r := &run{
		deployments: objectcache.NewStore[*v1alpha1.MachineDeployment](), sets: objectcache.NewStore[*v1alpha1.MachineSet](),
		machines: objectcache.NewStore[*v1alpha1.Machine](), classes: objectcache.NewStore[*v1alpha1.MachineClass](),
		leases: objectcache.NewStore[*coordinationv1.Lease](), listed: map[string]bool{}, failed: map[string]error{},
	}
	w := &Watch{runs: r, cfg: Config{
		FleetName: "fleet", Wall: clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0)),
		Receipts: func() []receipt.Receipt { return nil },
		Targets: func([]string) []view.TargetRead { // is asked after the stores
			for _, kind := range kinds() {
				r.fails(kind, nil)
			}
			return nil
		},
	}}
	if in := w.Read(); in.Loaded || model.Of(in).Troubles.All > 0 {
		t.Errorf("loaded %t, troubles %+v", in.Loaded, model.Of(in).Troubles.Rows)
	}
	if in := w.Read(); !in.Loaded {
		t.Error("it is not complete after all lists")
	}
}
