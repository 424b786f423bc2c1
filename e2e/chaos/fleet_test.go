//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// TestRollingRestart replaces the pods of all replicas, one after the other. In the end the
// replicas hold the same slots. Nothing else changes meanwhile: a changing load causes moves of
// slots, too.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	b := newBed(t, 3)
	const perReplica, each = 4, 3
	b.even(t)
	names := b.evenly(t, 3, perReplica)
	for _, name := range names {
		d := harness.Deployment(b.namespace, name, each)
		if _, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace).Create(b.ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.running(t, len(names)*each)
	b.even(t)
	before := b.places(t)
	for i := range 3 {
		name := fmt.Sprintf("fleet-%d", i)
		if err := b.lab.Replace(b.ctx, name); err != nil {
			t.Fatal(err)
		}
		b.ready(t, name)
		b.waitHeld(t)
	}
	if err := harness.Eventually(b.ctx, "the replicas hold the same slots as before", func(context.Context) error {
		after, moved := b.places(t), 0
		for slot, replica := range before {
			if after[slot] != replica {
				moved++
			}
		}
		if moved > 0 {
			return fmt.Errorf("%d slots have another holder", moved)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	b.end(t)
}

// TestRollingRestartUnderLoad does the same while machines are created and deleted. Each replica
// leaves in time: its slots are handed over, and none has to be taken over.
func TestRollingRestartUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	b := newBed(t, 3)
	b.load(t)
	for i := range 3 {
		name := fmt.Sprintf("fleet-%d", i)
		before := b.atWork(t, name)
		if err := b.lab.Replace(b.ctx, name); err != nil {
			t.Fatal(err)
		}
		b.waitHeld(t)
		if now := b.atWork(t, name); now == before {
			t.Errorf("session %s is at work after its pod was replaced", now)
		}
	}
	for i := range 3 {
		name := fmt.Sprintf("fleet-%d", i)
		taken, err := b.lab.Metric(b.ctx, name, "mcf_take_over_seconds_count")
		if err != nil || taken > 0 {
			t.Errorf("%s has taken %v slots over from sessions that left (%v), want none", name, taken, err)
		}
	}
	b.end(t)
}

// evenly returns names of MachineDeployments, the same number in the slots of each replica: the
// load of a few random ones is uneven, and a slot that has moved is not moved again for rebalancing
// for some minutes.
func (b *bed) evenly(t *testing.T, replicas, perReplica int) (names []string) {
	t.Helper()
	spread, err := assignment.NewSpread(slots, assignment.ByDeployment)
	if err != nil {
		t.Fatal(err)
	}
	places, has := b.places(t), map[string]int{}
	for i := 0; len(names) < replicas*perReplica; i++ {
		name := fmt.Sprintf("steady-%d", i)
		replica := places[member.SlotLeaseName(harness.FleetName, spread.Of(b.namespace, name), slots)]
		if has[replica] < perReplica {
			has[replica]++
			names = append(names, name)
		}
	}
	return names
}

// even waits until no slot has moved for 15 s and no replica carries so much more than the others
// that one would: the weights of the machines were reported then, and used for the assignment.
func (b *bed) even(t *testing.T) {
	t.Helper()
	const uneven = 1.10 // see UnevenAbove in shard/assignment
	var before map[string]string
	var since time.Time
	if err := harness.EventuallyEvery(b.ctx, time.Second, "the slots are shared evenly, and stay where they are",
		func(ctx context.Context) error {
			if now := b.places(t); !maps.Equal(now, before) {
				before, since = now, time.Now()
			}
			for i := range 3 {
				name := fmt.Sprintf("fleet-%d", i)
				ratio, err := b.lab.Metric(ctx, name, "mcf_imbalance_ratio")
				if err != nil {
					return err
				}
				if ratio > uneven {
					since = time.Now()
					return fmt.Errorf("%s sees the busiest carry %.2f of the mean", name, ratio)
				}
			}
			if quiet := time.Since(since); quiet < 15*time.Second {
				return errors.New("a slot has moved")
			}
			return nil
		}); err != nil {
		t.Fatal(err)
	}
}

// places returns the replica that holds each slot.
func (b *bed) places(t *testing.T) map[string]string {
	t.Helper()
	holders, err := b.lab.Holders(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{}
	for slot, session := range holders {
		places[slot] = replicaOf(session)
	}
	return places
}

// TestLeaderKilledWhileItMovesSlots kills the leader at several stages of the rebalancing for a new
// replica, each as soon as the slot Leases show it.
func TestLeaderKilledWhileItMovesSlots(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	const newcomer = "fleet-2"
	count := func(leases []coordinationv1.Lease, is func(assigned, holder string) bool) (n int) {
		for i := range leases {
			holder := ""
			if id := leases[i].Spec.HolderIdentity; id != nil {
				holder = replicaOf(*id)
			}
			if is(leases[i].Annotations[v1alpha1.AnnotationAssignedReplica], holder) {
				n++
			}
		}
		return n
	}
	stages := []struct {
		name    string
		reached func(leases []coordinationv1.Lease) bool
	}{
		{"planned for the newcomer", func(leases []coordinationv1.Lease) bool {
			return count(leases, func(assigned, holder string) bool { return assigned == newcomer && holder != newcomer }) > 0
		}},
		{"given up for the newcomer", func(leases []coordinationv1.Lease) bool {
			return count(leases, func(assigned, holder string) bool {
				return assigned == newcomer && holder != "fleet-0" && holder != "fleet-1"
			}) > 0
		}},
		{"taken by the newcomer", func(leases []coordinationv1.Lease) bool {
			return count(leases, func(_, holder string) bool { return holder == newcomer }) > 0
		}},
		{"half of the share taken", func(leases []coordinationv1.Lease) bool {
			return count(leases, func(_, holder string) bool { return holder == newcomer }) > slots/6
		}},
	}
	b := newBed(t, 2)
	b.load(t)
	for _, stage := range stages {
		leader := b.leader(t)
		scaled := make(chan error, 1)
		go func() { scaled <- b.lab.Scale(b.ctx, 3) }()
		if err := harness.EventuallyEvery(b.ctx, 20*time.Millisecond, stage.name, func(ctx context.Context) error {
			list, err := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).List(ctx, metav1.ListOptions{
				LabelSelector: v1alpha1.LabelLease + "=" + v1alpha1.LeaseOfSlot, ResourceVersion: "0",
			})
			if err == nil && !stage.reached(list.Items) {
				err = errors.New("not yet")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		b.do(t, leader, harness.Crash)
		t.Logf("killed %s, which led: %s", leader, stage.name)
		if err := <-scaled; err != nil {
			t.Fatal(err)
		}
		b.waitHeld(t)
		if err := b.lab.Scale(b.ctx, 2); err != nil {
			t.Fatal(err)
		}
		b.waitHeld(t)
	}
	b.end(t)
}

// TestScaleTheFleetDuringAScaleUp scales the fleet from 1 to 5 replicas and to 2 while it creates
// machines.
func TestScaleTheFleetDuringAScaleUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	b := newBed(t, 1)
	const machines, deployments = 500, 10
	b.cloud(t, `{"latency":{"CreateInstance":{"mean":"10s","spread":"3s"}}}`) // longer than the scaling of the fleet
	for i := range deployments {
		d := harness.Deployment(b.namespace, fmt.Sprintf("grow-%d", i), 0)
		if _, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace).Create(b.ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range deployments {
		if err := b.lab.ScaleDeployment(b.ctx, b.namespace, fmt.Sprintf("grow-%d", i), machines/deployments); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{5, 2} {
		if err := b.lab.Scale(b.ctx, n); err != nil {
			t.Fatal(err)
		}
		b.spread(t, n)
		b.growing(t, machines)
		b.waitHeld(t)
	}
	b.running(t, machines)
	b.end(t)
}

// growing fails the test unless less than n machines run, and logs how many do.
func (b *bed) growing(t *testing.T, n int) {
	t.Helper()
	phases, err := b.lab.Phases(b.ctx, b.namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("of %d machines, %d run", n, phases[v1alpha1.MachineRunning])
	if phases[v1alpha1.MachineRunning] >= n {
		t.Fatalf("expected machines that are still being created, got %v", phases)
	}
}

// spread waits until each of n replicas, and no other, holds slots.
func (b *bed) spread(t *testing.T, n int) {
	t.Helper()
	if err := harness.Eventually(b.ctx, fmt.Sprintf("%d replicas hold slots", n), func(context.Context) error {
		if shares := b.shares(t); len(shares) != n {
			return fmt.Errorf("%v", shares)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d replicas hold %v", n, b.shares(t))
}

// TestOrphans deletes MachineSets without their machines; the sets that replace them adopt these,
// and no machine is created or lost.
func TestOrphans(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	api := b.lab.Machines.MachineV1alpha1()
	const deployments, each = 6, 3
	for i := range deployments {
		d := harness.Deployment(b.namespace, fmt.Sprintf("family-%d", i), each)
		if _, err := api.MachineDeployments(b.namespace).Create(b.ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.running(t, deployments*each)
	if err := b.lab.WaitCollected(b.ctx); err != nil {
		t.Fatal(err)
	}
	before := b.uids(t)
	orphan := metav1.DeletePropagationOrphan
	if err := api.MachineSets(b.namespace).DeleteCollection(b.ctx, metav1.DeleteOptions{PropagationPolicy: &orphan},
		metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.Eventually(b.ctx, "every machine has a MachineSet again", func(ctx context.Context) error {
		list, err := api.Machines(b.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			owner := metav1.GetControllerOf(&list.Items[i])
			if owner == nil {
				return fmt.Errorf("machine %s has none", list.Items[i].Name)
			}
			set, err := api.MachineSets(b.namespace).Get(ctx, owner.Name, metav1.GetOptions{})
			if err != nil || set.UID != owner.UID || set.DeletionTimestamp != nil {
				return fmt.Errorf("machine %s has one that is gone, or being deleted", list.Items[i].Name)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if after := b.uids(t); !maps.Equal(before, after) {
		t.Errorf("machines before %v, after %v", before, after)
	}
	b.end(t)
}

// running waits until n machines run.
func (b *bed) running(t *testing.T, n int) {
	t.Helper()
	if err := harness.Eventually(b.ctx, fmt.Sprintf("%d machines run", n), func(ctx context.Context) error {
		phases, err := b.lab.Phases(ctx, b.namespace)
		if err == nil && phases[v1alpha1.MachineRunning] != n {
			err = fmt.Errorf("%v", phases)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// uids returns the UIDs of all machines, by name.
func (b *bed) uids(t *testing.T) map[string]string {
	t.Helper()
	list, err := b.lab.Machines.MachineV1alpha1().Machines(b.namespace).List(b.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	for _, m := range list.Items {
		uids[m.Name] = string(m.UID)
	}
	return uids
}
