package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// handOvers of each sort are measured, a few at a time.
	handOvers                = 100
	idleAtATime, busyAtATime = 5, 2
	// longestCall is what the cloud takes for a create or a delete; a hand-over may wait for one that is in flight.
	longestCall = 200 * time.Millisecond
	// arrived is how long after the write a slot has been served for sure; the replica itself tells when.
	arrived = 2 * time.Second
)

// measureHandOvers has slots handed over by hand, as the leader would: first while nothing happens in them, then while
// the machines of each are at the cloud.
func measureHandOvers(ctx context.Context, lab *harness.Lab, s sample) error {
	if err := lab.Cloud.Set(ctx, `{"bootTime":{"mean":"200ms","spread":"0s"}}`); err != nil { // it only makes this last longer
		return err
	}
	namespace := fmt.Sprintf("hand-over-%d", time.Now().Unix())
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	roots, err := makeRoots(ctx, lab, namespace)
	if err != nil {
		return err
	}
	mark, err := lab.MarkAudit()
	if err != nil {
		return err
	}
	if err := rebalanced(ctx, lab); err != nil {
		return err
	}
	var idle []time.Duration
	for len(idle) < handOvers {
		took, err := handOverSome(ctx, lab, roots, idleAtATime, nil)
		if err != nil {
			return err
		}
		idle = append(idle, took...)
	}
	writes, err := machineWrites(lab, mark)
	if err != nil {
		return err
	}
	var busy []time.Duration
	for size := 0; len(busy) < handOvers; size = machines - size {
		took, err := handOverSome(ctx, lab, roots, busyAtATime, func(root root) error { return lab.ScaleDeployment(ctx, namespace, root.name, size) })
		if err != nil {
			return err
		}
		busy = append(busy, took...)
		if err := settleAt(ctx, lab, namespace, size); err != nil {
			return err
		}
	}
	s["hand_over_p99_seconds"] = pair{value: percentile(idle, 99).Seconds()}
	s["hand_over_busy_p99_seconds"] = pair{value: percentile(busy, 99).Seconds(), floor: longestCall.Seconds()}
	s["hand_over_machine_writes"] = pair{value: float64(writes)}
	fmt.Printf("hand-over: median %.3f s, while the machines are at the cloud %.3f s\n", percentile(idle, 50).Seconds(), percentile(busy, 50).Seconds())
	if err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete the MachineDeployments: %w", err)
	}
	return lab.Cloud.Set(ctx, settings)
}

// root is a MachineDeployment in a slot of its own.
type root struct{ name, slot string }

// makeRoots makes MachineDeployments until enough of them are in slots of their own, and waits for their machines.
func makeRoots(ctx context.Context, lab *harness.Lab, namespace string) (roots []root, err error) {
	api := lab.Machines.MachineV1alpha1().MachineDeployments(namespace)
	for i := range deployments {
		if _, err := api.Create(ctx, harness.Deployment(namespace, fmt.Sprintf("md-%d", i), machines), metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create MachineDeployment: %w", err)
		}
	}
	if err := settleAt(ctx, lab, namespace, machines); err != nil {
		return nil, err
	}
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list MachineDeployments: %w", err)
	}
	for _, d := range list.Items {
		slot := d.Labels[v1alpha1.LabelSlot]
		if !slices.ContainsFunc(roots, func(r root) bool { return r.slot == slot }) {
			roots = append(roots, root{name: d.Name, slot: slot})
		}
	}
	return roots, nil
}

// handOverSome hands a few slots over at the same time, after stir has set their machines in motion, and returns how long
// each took.
func handOverSome(ctx context.Context, lab *harness.Lab, roots []root, atATime int, stir func(root) error) ([]time.Duration, error) {
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var running sync.WaitGroup
	for _, i := range rand.Perm(len(roots))[:min(atATime, len(roots))] { //nolint:gosec // which one is of no interest to anybody
		running.Go(func() {
			d, err := handOverOne(ctx, lab, roots[i], replicas, stir)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			if d > 0 {
				took = append(took, d)
			}
		})
	}
	running.Wait()
	return took, failed
}

// handOverOne writes another preferred holder, and asks it when it was done with the first key of the slot.
func handOverOne(ctx context.Context, lab *harness.Lab, r root, replicas []string, stir func(root) error) (time.Duration, error) {
	if stir != nil {
		if err := stir(r); err != nil {
			return 0, err
		}
		if err := pause(ctx, time.Duration(100+rand.IntN(200))*time.Millisecond); err != nil { //nolint:gosec // any moment will do
			return 0, err
		}
	}
	var slot int
	if _, err := fmt.Sscan(r.slot, &slot); err != nil {
		return 0, fmt.Errorf("slot label of %s: %w", r.name, err)
	}
	leases := lab.Control.CoordinationV1().Leases(harness.FleetNamespace)
	name := fmt.Sprintf("%s-slot-%03d", harness.FleetName, slot)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read the slot Lease: %w", err)
	}
	at := slices.Index(replicas, lease.Annotations[v1alpha1.AnnotationPreferredHolder])
	next := replicas[(at+1)%len(replicas)]
	lease.Annotations[v1alpha1.AnnotationPreferredHolder] = next
	start := time.Now()
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return 0, nil // the slot is on its way for another reason, and this one does not count
	}
	if err != nil {
		return 0, fmt.Errorf("write another preferred holder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, arrived)
	defer cancel()
	served, err := servedAt(ctx, lab, next, slot)
	if err != nil {
		return 0, nil // the leader has found a better place for it meanwhile, and this one does not count
	}
	return served.Sub(start), nil
}

// servedAt asks a replica when it was done with the first key of a slot that it holds. It runs on this machine, so that
// its clock is ours.
func servedAt(ctx context.Context, lab *harness.Lab, replica string, slot int) (served time.Time, err error) {
	err = harness.Eventually(ctx, fmt.Sprintf("%s serves slot %d", replica, slot), func(ctx context.Context) error {
		var view struct {
			Here []struct {
				Slot   int
				Served time.Time
			}
		}
		if err := lab.DebugSlots(ctx, replica, &view); err != nil {
			return err
		}
		for _, here := range view.Here {
			if here.Slot == slot && !here.Served.IsZero() {
				served = here.Served
				return nil
			}
		}
		return fmt.Errorf("it is not among its %d slots", len(view.Here))
	})
	return served, err
}

// settleAt scales all MachineDeployments of the namespace, and waits until they have so many machines, all running.
func settleAt(ctx context.Context, lab *harness.Lab, namespace string, size int) error {
	api := lab.Machines.MachineV1alpha1()
	list, err := api.MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list MachineDeployments: %w", err)
	}
	for _, d := range list.Items {
		if int(d.Spec.Replicas) != size {
			if err := lab.ScaleDeployment(ctx, namespace, d.Name, size); err != nil {
				return err
			}
		}
	}
	want := size * len(list.Items)
	return harness.Eventually(ctx, fmt.Sprintf("%d machines run", want), func(ctx context.Context) error {
		machines, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		phases := map[v1alpha1.MachinePhase]int{}
		for _, m := range machines.Items {
			phases[m.Status.CurrentStatus.Phase]++
		}
		if len(machines.Items) != want || phases[v1alpha1.MachineRunning] != want {
			return fmt.Errorf("machines by phase: %v", phases)
		}
		return nil
	})
}

// machineWrites counts the fleet's writes to Machines since the mark.
func machineWrites(lab *harness.Lab, mark harness.AuditMark) (n int, err error) {
	requests, err := lab.Requests(mark)
	for _, r := range requests {
		if r.IsFleet() && r.IsWrite() && r.Resource == "machines" {
			n++
		}
	}
	return n, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// percentile returns the smallest of the durations that at least p of a hundred are not above.
func percentile(durations []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
