package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// slots is the lab's number of slots.
const slots = 256

// measureDeaths kills replicas while 1,000 machines run, and measures until every slot is served again: after a take-over,
// every other time from the leader, and after the same pod's process has been started again.
func measureDeaths(ctx context.Context, lab *harness.Lab, kills int, s sample) error {
	var others, leaders, restarts []time.Duration
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
	for range max(kills/2, 1) {
		victim, err := pick(ctx, lab, false)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := lab.Do(ctx, victim, harness.Kill); err != nil {
			return err
		}
		if err := lab.Do(ctx, victim, harness.Start); err != nil {
			return err
		}
		took, err := allServed(ctx, lab, start)
		if err != nil {
			return err
		}
		restarts = append(restarts, took)
		if err := rebalanced(ctx, lab); err != nil {
			return err
		}
	}
	s["take_over_max_seconds"] = pair{value: percentile(others, 100).Seconds()}
	s["take_over_leader_max_seconds"] = pair{value: percentile(leaders, 100).Seconds()}
	s["restart_max_seconds"] = pair{value: percentile(restarts, 100).Seconds()}
	return nil
}

// pick returns a replica that leads, or one that does not.
func pick(ctx context.Context, lab *harness.Lab, leads bool) (string, error) {
	lease, err := lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx, harness.FleetName+"-leader", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the leader Lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", errors.New("nobody leads")
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

// allServed waits until every slot is open at some replica since start, and returns the moment when the last one was.
func allServed(ctx context.Context, lab *harness.Lab, start time.Time) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = harness.Eventually(ctx, "every slot is served", func(ctx context.Context) error {
		replicas, err := lab.Replicas(ctx)
		if err != nil {
			return err
		}
		open := map[int]bool{}
		last := start
		for _, replica := range replicas {
			var view struct {
				Here []struct {
					Slot   int
					Open   bool
					Opened time.Time
				}
			}
			if err := lab.DebugSlots(ctx, replica, &view); err != nil {
				continue // it is the one that was killed
			}
			for _, here := range view.Here {
				if here.Open {
					open[here.Slot] = true
				}
				if here.Open && here.Opened.After(last) {
					last = here.Opened
				}
			}
		}
		if len(open) != slots {
			return fmt.Errorf("%d of %d are", len(open), slots)
		}
		took = last.Sub(start)
		return nil
	})
	return took, err
}

// rebalanced waits until no slot is on its way for a while.
func rebalanced(ctx context.Context, lab *harness.Lab) error {
	if err := lab.WaitHeld(ctx, slots); err != nil {
		return err
	}
	quiet := 0
	before, err := lab.Holders(ctx)
	for err == nil && quiet < 3 {
		if err = pause(ctx, time.Second); err != nil {
			return err
		}
		var after map[string]string
		after, err = lab.Holders(ctx)
		quiet++
		for name, holder := range after {
			if before[name] != holder {
				quiet = 0
			}
		}
		before = after
	}
	return err
}
