package main

import (
	"context"
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// measureRestarts kills the process of a fleet's only replica, which owns all machines, and
// restarts it in its pod at once. The fleet has its initial size in the end.
func measureRestarts(ctx context.Context, lab *harness.Lab, restarts int, s sample) error {
	if err := scale(ctx, lab, 1); err != nil {
		return err
	}
	owned, err := ownedMachines(ctx, lab)
	if err != nil {
		return err
	}
	if owned[harness.Fleet] < crowd {
		return fmt.Errorf("expected %s to own %d machines, got %v", harness.Fleet, crowd, owned)
	}
	var all []time.Duration
	for range restarts {
		start := time.Now()
		if err := lab.Do(ctx, harness.Fleet, harness.Kill); err != nil {
			return err
		}
		if err := lab.Do(ctx, harness.Fleet, harness.Start); err != nil {
			return err
		}
		took, err := allServed(ctx, lab, start)
		if err != nil {
			return err
		}
		fmt.Printf("restart with %d own machines: %.2f s\n", owned[harness.Fleet], took.Seconds())
		all = append(all, took)
		if err := rebalanced(ctx, lab); err != nil {
			return err
		}
	}
	s["restart_1000_max_seconds"] = pair{value: percentile(all, 100).Seconds()}
	return scale(ctx, lab, fleetSize)
}

// scale changes the number of replicas, and waits until the slots are rebalanced.
func scale(ctx context.Context, lab *harness.Lab, replicas int) error {
	if err := lab.Scale(ctx, replicas); err != nil {
		return err
	}
	return rebalanced(ctx, lab)
}
