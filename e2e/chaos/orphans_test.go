//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// sweepFlags let a sweep of orphans take seconds. orphanCap is more than one test deletes, and less
// than that with a second group.
const (
	orphanCap  = 60
	sweepFlags = "--machine-safety-orphan-vms-period=10s --machine-safety-orphan-vms-quarantine=15s"
)

// TestOrphanVMs: VMs without a machine are deleted while replicas are killed, and no other VM. A
// group that is larger than what is left of the hour's cap is not deleted until a person approves
// it.
func TestOrphanVMs(t *testing.T) {
	if testing.Short() {
		t.Skip("part of long runs")
	}
	t.Parallel()
	const orphans, more, pools, each = 50, 12, 10, 50
	b := newBedWith(t, 3, slots, sweepFlags, fmt.Sprintf("--safety-max-orphan-deletions=%d", orphanCap))
	for i := range pools {
		d := harness.Deployment(b.namespace, fmt.Sprintf("pool-%d", i), each)
		if _, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace).Create(b.ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.running(t, pools*each)
	others := b.others(t)
	healthy := b.vms(t)
	start := time.Now()
	b.orphan(t, "orphan", orphans)

	killed := 0
	for victim := b.leader(t); killed < 4 && b.count(t, "orphan") > 0; victim = b.replica(t) {
		b.do(t, victim, harness.Crash)
		killed++
		b.wait(t, 12*time.Second)
	}
	b.swept(t, "orphan")
	t.Logf("%d orphans next to %d machines were deleted after %.0f s, in which %d replicas were killed",
		orphans, pools*each, time.Since(start).Seconds(), killed)
	b.alive(t, healthy)
	b.alive(t, others)

	b.orphan(t, "second", more)
	digest, held := b.held(t, "second")
	b.wait(t, 30*time.Second) // three further sweeps
	if n := b.count(t, "second"); n != held || orphans+more-held > orphanCap {
		t.Fatalf("%d of %d orphans were held and %d are left, in addition to %d that were deleted before; the cap is %d",
			held, more, n, orphans, orphanCap)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationDeleteOrphans, digest)
	if _, err := b.lab.Machines.MachineV1alpha1().MachineClasses(b.namespace).Patch(b.ctx, harness.ClassName, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	b.swept(t, "second")
	b.alive(t, healthy)
	b.alive(t, others)
	for id := range others {
		if err := b.lab.Cloud.Act(b.ctx, id, cloudapi.ActionDie); err != nil {
			t.Fatal(err)
		}
	}
	b.end(t)
}

// TestLateCreateIsSwept produces the one VM that the fleet itself leaves: a create that is sent
// after its machine is gone.
func TestLateCreateIsSwept(t *testing.T) {
	t.Parallel()
	b := newBedWith(t, 3, slotCount(), sweepFlags)
	for try := 1; !b.createsLate(t, fmt.Sprintf("late-%d", try)); try++ {
		if try == lateTries {
			t.Fatal("no create was sent late")
		}
	}
	start := time.Now()
	b.eventually(t, "that VM is deleted", func(ctx context.Context) error {
		vms, err := b.lab.Cloud.VMs(ctx, b.namespace)
		if err == nil && len(vms) > 0 {
			err = fmt.Errorf("%d VMs are left", len(vms))
		}
		return err
	})
	t.Logf("the VM was deleted %.0f s after it was created", time.Since(start).Seconds())
	b.end(t)
}

// createsLate has a replica send the create of a machine of a MachineDeployment after the machine
// is gone, and reports whether the cloud has created the VM: the resumed process may notice first
// how late it is, and end.
func (b *bed) createsLate(t *testing.T, name string) bool {
	t.Helper()
	point, err := b.lab.StopNext(b.ctx, string(driver.OpCreate)+" ")
	if err != nil {
		t.Fatal(err)
	}
	api := b.lab.Machines.MachineV1alpha1()
	if _, err := api.MachineDeployments(b.namespace).Create(b.ctx, harness.Deployment(b.namespace, name, 1),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	at, err := point.Wait(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has stopped before %s", at.Session, at.What)
	// It is being deleted before another replica has it, so that none creates its VM.
	if err := api.MachineDeployments(b.namespace).DeleteCollection(b.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "the machine is being deleted", func(ctx context.Context) error {
		machines, err := api.Machines(b.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && (len(machines.Items) != 1 || machines.Items[0].DeletionTimestamp == nil) {
			err = fmt.Errorf("there are %d machines, and the first is not", len(machines.Items))
		}
		return err
	})
	b.do(t, at.Replica, harness.Pause)
	b.waitTakenOver(t, at.Session)
	b.eventually(t, "the machine is gone", func(ctx context.Context) error { return noObjects(ctx, b.lab, b.namespace) })
	released := make(chan error, 1)
	go func() { released <- b.lab.Release(b.ctx, at.Replica) }()
	b.wait(t, 100*time.Millisecond)
	b.do(t, at.Replica, harness.Resume)
	if err := <-released; err != nil {
		t.Logf("the process ended before it answered: %v", err)
	}
	created := false
	b.eventually(t, "the cloud has a VM of the machine that is gone, or the session that creates it has ended",
		func(ctx context.Context) error {
			ended, err1 := b.hasEnded(ctx, at.Session)
			vms, err2 := b.lab.Cloud.VMs(ctx, b.namespace)
			err := errors.Join(err1, err2)
			if created = len(vms) > 0; err == nil && !created && !ended {
				err = errors.New("it has none")
			}
			return err
		})
	return created
}

// TestLeaderKilledInEachStepOfASweep kills the leader before each kind of request that a sweep
// makes as the leader: nothing is deleted twice, and nothing is forgotten.
func TestLeaderKilledInEachStepOfASweep(t *testing.T) {
	if testing.Short() {
		t.Skip("part of long runs")
	}
	t.Parallel()
	b := newBedWith(t, 2, slots, sweepFlags)
	for i, step := range []string{
		"PATCH /apis/machine.sapcloud.io/v1alpha1/namespaces/" + b.namespace + "/machineclasses/", string(driver.OpSweep) + " ",
	} {
		prefix := fmt.Sprintf("step-%d", i)
		point, err := b.lab.StopNext(b.ctx, step)
		if err != nil {
			t.Fatal(err)
		}
		b.orphan(t, prefix, 3)
		at, err := point.Wait(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(at.What, " under leader") {
			t.Fatalf("%s has stopped before %s, which is not the leader's", at.Session, at.What)
		}
		t.Logf("%s is killed before %s", at.Session, at.What)
		b.do(t, at.Replica, harness.Crash)
		if err := point.Release(b.ctx); err != nil {
			t.Log(err) // the process that had stopped is gone
		}
		b.swept(t, prefix)
	}
	calls, err := b.lab.Cloud.Calls()
	if err != nil {
		t.Fatal(err)
	}
	deleted := map[string]int{}
	for _, call := range calls {
		if call.Operation == cloudapi.OpDeleteInstance && call.Changed {
			deleted[call.Instance]++
		}
	}
	for id, n := range deleted {
		if n > 1 {
			t.Errorf("VM %s was deleted %d times", id, n)
		}
	}
	b.end(t)
}

// orphan creates VMs at the cloud as the fleet would have created them for machines that do not
// exist.
func (b *bed) orphan(t *testing.T, prefix string, n int) {
	t.Helper()
	for i := range n {
		b.createVM(t, fmt.Sprintf("%s-%d", prefix, i), b.tags(t, prefix, i))
	}
}

func (b *bed) tags(t *testing.T, prefix string, i int) map[string]string {
	t.Helper()
	system, err := b.lab.Control.CoreV1().Namespaces().Get(b.ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		simulated.TagCluster: b.namespace, simulated.TagMachine: fmt.Sprintf("%s-%d", prefix, i),
		simulated.TagMachineUID: fmt.Sprintf("0000-%s-%d", prefix, i), simulated.TagControlCluster: string(system.UID),
	}
}

func (b *bed) createVM(t *testing.T, name string, tags map[string]string) (id string) {
	t.Helper()
	b.recorder.Orphans = append(b.recorder.Orphans, name)
	created, err := b.lab.Cloud.Create(b.ctx, cloudapi.CreateInstanceRequest{Name: name, ClientToken: name, Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	return created.ID
}

// others creates VMs that a sweep must not delete, each with one tag that differs from those of an
// orphan.
func (b *bed) others(t *testing.T) map[string]bool {
	t.Helper()
	created := map[string]bool{}
	for i, change := range []func(tags map[string]string){
		func(tags map[string]string) { tags[simulated.TagControlCluster] = "another" },
		func(tags map[string]string) { tags[simulated.TagCluster] = "unknown" },
		func(tags map[string]string) { delete(tags, simulated.TagMachineUID) },
		func(tags map[string]string) { delete(tags, simulated.TagControlCluster) },
		func(tags map[string]string) { delete(tags, simulated.TagMachine) },
	} {
		tags := b.tags(t, "other", i)
		change(tags)
		created[b.createVM(t, fmt.Sprintf("other-%d", i), tags)] = true
	}
	return created
}

// vms returns the IDs of all VMs of machines.
func (b *bed) vms(t *testing.T) map[string]bool {
	t.Helper()
	machines, err := b.lab.Machines.MachineV1alpha1().Machines(b.namespace).List(b.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, m := range machines.Items {
		ids[m.Spec.ProviderID[strings.LastIndexByte(m.Spec.ProviderID, '/')+1:]] = true
	}
	return ids
}

// alive fails unless all of these VMs exist.
func (b *bed) alive(t *testing.T, ids map[string]bool) {
	t.Helper()
	vms, err := b.lab.Cloud.VMs(b.ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, vm := range vms {
		if ids[vm.ID] {
			found++
		}
	}
	if found != len(ids) {
		t.Fatalf("%d of %d VMs that must not be deleted exist", found, len(ids))
	}
}

// count counts the VMs whose names have a prefix.
func (b *bed) count(t *testing.T, prefix string) (n int) {
	t.Helper()
	vms, err := b.lab.Cloud.VMs(b.ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range vms {
		if strings.HasPrefix(vm.Name, prefix+"-") {
			n++
		}
	}
	return n
}

// swept waits until the VMs whose names have a prefix are deleted.
func (b *bed) swept(t *testing.T, prefix string) {
	t.Helper()
	b.eventually(t, "the orphans "+prefix+" are deleted", func(context.Context) error {
		if n := b.count(t, prefix); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// held waits for the Event that the remaining orphans are not deleted, and returns their number and
// the digest that approves their deletion. A sweep that began while they were created has deleted
// the first ones, up to the cap.
func (b *bed) held(t *testing.T, prefix string) (digest string, n int) {
	t.Helper()
	b.eventually(t, "an Event reports that the remaining orphans are held", func(ctx context.Context) error {
		n = b.count(t, prefix)
		events, err := b.lab.Control.EventsV1().Events(b.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range slices.Backward(events.Items) {
			if e.Reason != v1alpha1.EventOrphansHeld || !strings.HasPrefix(e.Note, fmt.Sprintf("Held %d orphans", n)) {
				continue
			}
			if _, after, found := strings.Cut(e.Note, v1alpha1.AnnotationDeleteOrphans+"="); found {
				digest = strings.Trim(strings.Fields(after)[0], `."';,`)
				t.Log(e.Note)
				return nil
			}
		}
		return fmt.Errorf("none does of %d", n)
	})
	return digest, n
}

// eventually waits for a condition.
func (b *bed) eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	if err := harness.Eventually(b.ctx, what, check); err != nil {
		t.Fatal(err)
	}
}
