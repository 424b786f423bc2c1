//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/record"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// TestRestoredEtcd restores etcd from a snapshot. It is guaranteed that every slot gets an owner,
// and every restored machine keeps its VM, or gets one; VMs of machines that were created after the
// snapshot stay.
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
	killForLong(t, b) // its slots move, so that their epochs differ from those in the snapshot
	known := b.uids(t)
	away := b.recorder.Outage(b.ctx, t, func() {
		if err := b.lab.Restore(b.ctx, file, 0); err != nil {
			t.Fatal(err)
		}
	})
	b.recorder.Reset(-1, away.From, away.To)
	gone := missing(known, b.uids(t))
	if len(gone) != 5 {
		t.Fatalf("machines before %v, and these are forgotten: %v", known, gone)
	}
	b.waitHeld(t)
	create("again")
	b.running(t, 10)
	if err := harness.Eventually(b.ctx, "each machine has one VM, also those that are forgotten", func(ctx context.Context) error {
		return record.Converged(ctx, b.lab, b.namespace, gone...)
	}); err != nil {
		t.Error(err)
	}
	nothingDeleted(t, b.lab)
	if err := noSecondVM(b.lab); err != nil {
		t.Error(err)
	}
	b.recorder.Verdict(t)
}

// TestRestoredEtcdUnderLoad does so while machines are created and deleted, and as recommended:
// revisions are not used twice. Deleted machines exist again, and later ones are forgotten. Every
// slot gets an owner, which serves new objects, all machines can be deleted, and only forgotten
// ones leave a VM behind.
func TestRestoredEtcdUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	b := newBed(t, 3)
	b.load(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := b.lab.Save(b.ctx, file); err != nil {
		t.Fatal(err)
	}
	then := b.uids(t)
	b.eventually(t, "machines were created and deleted since", func(context.Context) error {
		now := b.uids(t)
		if gone, created := missing(then, now), missing(now, then); len(gone) == 0 || len(created) == 0 {
			return fmt.Errorf("%d were deleted, %d were created", len(gone), len(created))
		}
		return nil
	})
	if err := b.churn.stop(); err != nil { // the fleet still processes what the load has left
		t.Fatal(err)
	}
	known := b.uids(t)
	const raised = 1_000_000_000
	away := b.recorder.Outage(b.ctx, t, func() {
		if err := b.lab.Restore(b.ctx, file, raised); err != nil {
			t.Fatal(err)
		}
	})
	b.recorder.Reset(-1, away.From, away.To)
	b.waitHeld(t)
	gone, forgotten := missing(then, known), missing(known, b.uids(t))
	t.Logf("since the snapshot %d machines were deleted, and %d were created, which are forgotten", len(gone), len(forgotten))
	if len(gone) == 0 || len(forgotten) == 0 {
		t.Fatal("want machines that were created and deleted since")
	}

	api := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace)
	const name, each = "new", 5
	if _, err := api.Create(b.ctx, harness.Deployment(b.namespace, name, each), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.Eventually(b.ctx, "new objects are served", func(ctx context.Context) error {
		d, err := api.Get(ctx, name, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != each {
			err = fmt.Errorf("of %d machines %d are ready", each, d.Status.ReadyReplicas)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := api.DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.Eventually(b.ctx, "nothing is left", func(ctx context.Context) error {
		return noObjects(ctx, b.lab, b.namespace)
	}); err != nil {
		t.Error(err)
	}
	vms, err := b.lab.Cloud.VMs(b.ctx, b.namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range vms {
		if vm.CreatedAt.After(away.To) {
			t.Errorf("VM %s was created after the restore, and belongs to no machine", vm.Name)
		}
	}
	if err := noSecondVM(b.lab); err != nil {
		t.Error(err)
	}
	b.recorder.Verdict(t)
}

// nothingDeleted fails the test for each VM that was deleted.
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

// missing returns the UIDs of machines that existed before and do not exist after, by name.
func missing(before, after map[string]string) (uids []string) {
	for name, uid := range before {
		if after[name] != uid {
			uids = append(uids, uid)
		}
	}
	return uids
}
