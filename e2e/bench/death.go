package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
)

// slots is the lab's number of slots.
const slots = 256

// crowd is how many machines there are while replicas are killed.
const crowd = 1000

// measureDeaths kills replicas while 1,000 machines run, and measures until every slot is served
// again: after a take-over, every other time from the leader, and after the only replica's process
// was restarted in its pod.
func measureDeaths(ctx context.Context, lab *harness.Lab, kills int, s sample) error {
	if _, err := standStill(ctx, lab, func() error {
		return addMachines(ctx, lab, preload.Load{Namespace: "crowd", Deployments: crowd / machines, Machines: machines})
	}); err != nil {
		return err
	}
	var others, leaders []time.Duration
	for i := range kills {
		ofLeader := i%2 == 1
		victim, err := pick(ctx, lab, ofLeader)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := lab.Do(ctx, victim, harness.Kill); err != nil {
			return err
		}
		took, err := allServed(ctx, lab, start)
		if err != nil {
			return err
		}
		fmt.Printf("take-over from %s, leader %t: %.2f s\n", victim, ofLeader, took.Seconds())
		if ofLeader {
			leaders = append(leaders, took)
		} else {
			others = append(others, took)
		}
		if err := lab.Do(ctx, victim, harness.Start); err != nil {
			return err
		}
		if err := rebalanced(ctx, lab); err != nil {
			return err
		}
	}
	s["take_over_max_seconds"] = pair{value: percentile(others, 100).Seconds()}
	s["take_over_leader_max_seconds"] = pair{value: percentile(leaders, 100).Seconds()}
	return measureRestarts(ctx, lab, max(kills/2, 1), s)
}

// standStill runs a function while no replica runs. From then on the controller manager is paused,
// too: it would declare Nodes lost whose Leases are not renewed. It returns how long the fleet
// took, from when it held the first slot, until all objects had their labels.
func standStill(ctx context.Context, lab *harness.Lab, do func() error) (labelled time.Duration, err error) {
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return 0, err
	}
	for _, replica := range replicas {
		if err := lab.Do(ctx, replica, harness.Stop); err != nil {
			return 0, err
		}
	}
	if err := lab.Do(ctx, "kube-controller-manager", harness.Pause); err != nil {
		fmt.Println("the controller manager is paused already:", err)
	}
	if err := do(); err != nil {
		return 0, err
	}
	started := time.Now()
	for _, replica := range replicas {
		if err := lab.Do(ctx, replica, harness.Start); err != nil {
			return 0, err
		}
	}
	if err := someHeld(ctx, lab); err != nil {
		return 0, err
	}
	held := time.Now()
	if err := allLabelled(ctx, lab); err != nil {
		return 0, err
	}
	labelled = time.Since(held)
	fmt.Printf("the first slot was held %.1f s after the replicas were started, and all objects had slot labels %.1f s later\n",
		held.Sub(started).Seconds(), labelled.Seconds())
	return labelled, rebalanced(ctx, lab)
}

// someHeld waits until the fleet holds a slot. No object can be labelled before that.
func someHeld(ctx context.Context, lab *harness.Lab) error {
	return harness.Eventually(ctx, "a slot is held", func(ctx context.Context) error {
		holders, err := lab.Holders(ctx)
		if err != nil {
			return err
		}
		for _, session := range holders {
			if session != "" {
				return nil
			}
		}
		return errors.New("no replica holds one")
	})
}

// addMachines creates running machines, in a separate namespace.
func addMachines(ctx context.Context, lab *harness.Lab, load preload.Load) error {
	if err := lab.Prepare(ctx, load.Namespace, ""); err != nil {
		return err
	}
	start := time.Now()
	if err := load.Create(ctx, lab); err != nil {
		return err
	}
	fmt.Printf("%d machines were created in %.0f s\n", load.Deployments*load.Machines, time.Since(start).Seconds())
	return nil
}

// allLabelled waits until all objects have a slot label.
func allLabelled(ctx context.Context, lab *harness.Lab) error {
	api := lab.Machines.MachineV1alpha1()
	unlabeled := metav1.ListOptions{LabelSelector: "!" + v1alpha1.LabelSlot, Limit: 1}
	return harness.EventuallyEvery(ctx, time.Second, "everything has a slot", func(ctx context.Context) error {
		machines, err := api.Machines("").List(ctx, unlabeled)
		if err != nil {
			return err
		}
		deployments, err := api.MachineDeployments("").List(ctx, unlabeled)
		if err != nil {
			return err
		}
		if n := len(machines.Items) + len(deployments.Items); n > 0 {
			return errors.New("some machines or MachineDeployments have none")
		}
		return nil
	})
}

// pick returns a replica that leads, or one that does not.
func pick(ctx context.Context, lab *harness.Lab, leads bool) (string, error) {
	lease, err := lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx, harness.FleetName+"-leader", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the leader Lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", errors.New("there is no leader")
	}
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return "", err
	}
	for _, replica := range replicas {
		if strings.HasPrefix(*lease.Spec.HolderIdentity, replica+"_") == leads {
			return replica, nil
		}
	}
	return "", fmt.Errorf("expected a replica that leads (%t) among %q", leads, replicas)
}

// unevenAbove is the largest load of a replica, relative to the mean, of a balanced fleet. Ten
// slots of the same weight on three replicas cannot be balanced better than 1.2.
const unevenAbove = 1.25

// rebalanced waits until the weight of the slots is balanced, and none is moving.
func rebalanced(ctx context.Context, lab *harness.Lab) error {
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return err
	}
	var before map[string]string
	return harness.EventuallyEvery(ctx, time.Second, "the slots are shared evenly", func(ctx context.Context) error {
		holders, err := lab.Holders(ctx)
		if err != nil {
			return err
		}
		moved := !maps.Equal(before, holders)
		before = holders
		shares := map[string]int{}
		for _, session := range holders {
			replica, _, _ := strings.Cut(session, "_")
			shares[replica]++
		}
		for _, replica := range replicas {
			imbalance, err := lab.Metric(ctx, replica, "mcf_imbalance_ratio")
			if err != nil {
				return err
			}
			if shares[replica] == 0 || imbalance > unevenAbove {
				return fmt.Errorf("%s sees the busiest carry %.2f of the mean; slots by replica: %v", replica, imbalance, shares)
			}
		}
		if moved {
			return errors.New("slots are moving")
		}
		return nil
	})
}
