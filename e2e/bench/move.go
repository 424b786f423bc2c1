package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// handOvers of each kind are measured, a few at a time.
	handOvers                = 100
	idleAtATime, busyAtATime = 5, 2
	// longestCall is the time of a create or a delete at the cloud; a hand-over may wait for one that
	// is in flight.
	longestCall = 200 * time.Millisecond
	// arrived is how long a hand-over is observed; one that takes longer counts as that long. It is
	// shorter than the time after which the leader assigns a slot without a holder to another replica,
	// so that no hand-over is excluded because it is slow.
	arrived = 2 * time.Second
	// mostElsewhere of the hand-overs of each kind may be excluded because the slot was assigned to
	// another replica, and mostIdle because not all machines of the slot had a call of the cloud in
	// flight: the ten calls have to overlap when the hand-over is requested.
	mostElsewhere, mostIdle = 5, 4 * handOvers
)

// measureHandOvers requests hand-overs of slots, as the leader does: first while nothing changes in
// them, then while calls of the cloud are in flight for the machines of each.
func measureHandOvers(ctx context.Context, lab *harness.Lab, s sample) error {
	if err := lab.Cloud.Set(ctx, `{"bootTime":{"mean":"200ms","spread":"0s"}}`); err != nil { // shortens the measurement
		return err
	}
	namespace := fmt.Sprintf("hand-over-%d", time.Now().Unix())
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	roots, err := createRoots(ctx, lab, namespace)
	if err != nil {
		return err
	}
	position, err := lab.AuditEnd()
	if err != nil {
		return err
	}
	if err := rebalanced(ctx, lab); err != nil {
		return err
	}
	var idle, busy moves
	for len(idle.created) < handOvers {
		if err := idle.some(ctx, lab, roots, idleAtATime, nil); err != nil {
			return err
		}
	}
	writes, err := machineWrites(lab, position)
	if err != nil {
		return err
	}
	for size := 0; len(busy.created) < handOvers; size = machines - size {
		stir := func(root root) error { return atWork(ctx, lab, namespace, root, size) }
		if err := busy.some(ctx, lab, roots, busyAtATime, stir); err != nil {
			return err
		}
		if err := settleAt(ctx, lab, namespace, size); err != nil {
			return err
		}
		calls, err := lab.Cloud.Calls()
		if err != nil {
			return err
		}
		if err := busy.onlyBusy(calls); err != nil {
			return err
		}
	}
	s["hand_over_p99_seconds"] = pair{value: idle.percentile(99).Seconds()}
	s["hand_over_busy_p99_seconds"] = pair{value: busy.percentile(99).Seconds(), floor: longestCall.Seconds()}
	s["hand_over_machine_writes"] = pair{value: float64(writes)}
	fmt.Println("hand-over:", &idle)
	fmt.Println("hand-over while calls of the cloud are in flight:", &busy)
	if err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete the MachineDeployments: %w", err)
	}
	return lab.Cloud.Set(ctx, settings)
}

// atWork scales a MachineDeployment, and waits until the cloud has begun to create the last of its
// VMs, or to delete it: a call takes effect when it begins. Most of the other calls are still in
// flight then.
func atWork(ctx context.Context, lab *harness.Lab, namespace string, r root, size int) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	if err := lab.ScaleDeployment(ctx, namespace, r.name, size); err != nil {
		return err
	}
	return harness.EventuallyEvery(ctx, 10*time.Millisecond, fmt.Sprintf("%s has or is getting %d VMs", r.name, size),
		func(ctx context.Context) error {
			vms, err := lab.Cloud.VMs(ctx, namespace)
			if err != nil {
				return err
			}
			n := 0
			for _, vm := range vms {
				if strings.HasPrefix(vm.Name, r.name+"-") {
					n++
				}
			}
			if n != size {
				return fmt.Errorf("it has %d", n)
			}
			return nil
		})
}

// root is a MachineDeployment in a slot that no other root is in.
type root struct{ name, slot string }

// createRoots creates MachineDeployments until enough of them are in separate slots, and waits
// for their machines.
func createRoots(ctx context.Context, lab *harness.Lab, namespace string) (roots []root, err error) {
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

// settleAt scales all MachineDeployments of the namespace, and waits until they have so many
// machines, all running.
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

// machineWrites counts the fleet's writes to Machines since the position.
func machineWrites(lab *harness.Lab, position harness.AuditPosition) (n int, err error) {
	requests, err := lab.Requests(position)
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

// percentile returns the smallest duration that at least p percent of the durations do not exceed.
func percentile(durations []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
