//go:build e2e

package chaos

import (
	"context"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestRestoredEtcd puts etcd back to what it held a while ago. What is promised is that every slot gets an owner, and every
// machine that there is then keeps its VM, or gets one; VMs of machines that were forgotten stay.
func TestRestoredEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	b := newBed(t, 3)
	api := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace)
	create := func(name string) {
		if _, err := api.Create(b.ctx, harness.Deployment(b.namespace, name, 5), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("before")
	b.running(t, 5)
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := b.lab.Save(b.ctx, file); err != nil {
		t.Fatal(err)
	}
	create("after")
	b.running(t, 10)
	killForLong(t, b) // its slots change hands, so that their epochs are others than in the snapshot
	known := b.uids(t)
	away := b.recorder.outage(b.ctx, t, func() {
		if err := b.lab.Restore(b.ctx, file, 0); err != nil {
			t.Fatal(err)
		}
	})
	b.recorder.reset(-1, away.From, away.To)
	gone := missing(known, b.uids(t))
	if len(gone) != 5 {
		t.Fatalf("machines before %v, and these are forgotten: %v", known, gone)
	}
	b.held(t)
	create("again")
	b.running(t, 10)
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := harness.Eventually(ctx, "each machine has one VM, also those that are forgotten", func(ctx context.Context) error {
		return converged(ctx, b.lab, b.namespace, gone...)
	}); err != nil {
		t.Error(err)
	}
	nothingDeleted(t, b.lab)
	if err := noSecondVM(b.lab); err != nil {
		t.Error(err)
	}
	b.recorder.verdict(t)
}

// nothingDeleted fails the test for each VM that was.
func nothingDeleted(t *testing.T, lab *harness.Lab) {
	t.Helper()
	calls, err := lab.Cloud.Calls()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		if call.Operation == cloudapi.OpDeleteInstance {
			t.Errorf("call %d by %s has deleted the VM of machine %s", call.ID, call.Caller, call.Machine)
		}
	}
}

// missing are the UIDs of machines that there were, by name, and are not any more.
func missing(before, after map[string]string) (uids []string) {
	for name, uid := range before {
		if after[name] != uid {
			uids = append(uids, uid)
		}
	}
	return uids
}
