//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

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

// TestRestoredEtcdUnderLoad does so while machines come and go, and as one should: revisions are not given out twice. Machines
// that had gone are there again, and others are forgotten. Every slot gets an owner, who serves what is new, all that there
// is can be deleted, and nobody but the forgotten leaves a VM behind.
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
	b.wait(t, 20*time.Second)
	if err := b.churn.stop(); err != nil { // the fleet is at work with what it has left
		t.Fatal(err)
	}
	known := b.uids(t)
	const raised = 1_000_000_000
	away := b.recorder.outage(b.ctx, t, func() {
		if err := b.lab.Restore(b.ctx, file, raised); err != nil {
			t.Fatal(err)
		}
	})
	b.recorder.reset(-1, away.From, away.To)
	b.held(t)
	gone, forgotten := missing(then, known), missing(known, b.uids(t))
	t.Logf("since the snapshot %d machines had gone, and %d have come that are forgotten", len(gone), len(forgotten))
	if len(gone) == 0 || len(forgotten) == 0 {
		t.Fatal("want machines that had come and gone since")
	}

	api := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace)
	const name, each = "new", 5
	if _, err := api.Create(b.ctx, harness.Deployment(b.namespace, name, each), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	if err := harness.Eventually(ctx, "what is new is served", func(ctx context.Context) error {
		d, err := api.Get(ctx, name, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != each {
			err = fmt.Errorf("of %d machines %d are ready", each, d.Status.ReadyReplicas)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.Eventually(ctx, "nothing is left", func(ctx context.Context) error { return noObjects(ctx, b.lab, b.namespace) }); err != nil {
		t.Error(err)
	}
	vms, err := b.lab.Cloud.VMs(ctx, b.namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range vms {
		if vm.CreatedAt.After(away.To) {
			t.Errorf("VM %s was made after the restore, and nobody has it", vm.Name)
		}
	}
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
