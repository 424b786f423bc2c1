package main

import (
	"context"
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// measureLeader measures what the leader takes at rest beyond other replicas, with many machines
// that all replicas share, and how much later than planned its renewals arrive meanwhile.
func measureLeader(ctx context.Context, lab *harness.Lab, machines int, rest time.Duration, s sample) error {
	if _, err := standStill(ctx, lab, func() error {
		return addMachines(ctx, lab, preload.Load{Namespace: many, Deployments: machines / perDeployment, Machines: perDeployment})
	}); err != nil {
		return err
	}
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return err
	}
	for _, replica := range replicas {
		if err := rests(ctx, lab, replica); err != nil {
			return err
		}
	}
	leader, err := pick(ctx, lab, true)
	if err != nil {
		return err
	}
	position, err := lab.AuditEnd()
	if err != nil {
		return err
	}
	b, u := burden{lab: lab}, used{}
	came, took, err := during(ctx, lab, func() (err error) {
		u, err = b.during(ctx, func() error { return pause(ctx, rest) })
		return err
	})
	if err != nil {
		return err
	}
	requests, err := lab.Requests(position)
	if err != nil {
		return err
	}
	late, answers := renewals(requests, leader)
	if len(late) == 0 {
		return fmt.Errorf("expected renewals of the session of %s in %s, found none", leader, rest)
	}
	fmt.Printf("%d machines, %s leads: %s\n", machines, leader, u)
	var cores, bytes float64
	for i, replica := range u.replicas {
		heap, err := liveHeap(ctx, lab, replica)
		if err != nil {
			return err
		}
		resident, err := lab.Metric(ctx, replica, "process_resident_memory_bytes")
		if err != nil {
			return err
		}
		fmt.Printf("%s: %.1f MB live heap, %.0f MB RSS, received %.1f MB from the control cluster, %.1f MB from the target cluster\n", replica,
			heap/1e6, resident/1e6, came[replica].control/1e6, came[replica].target/1e6)
		share := -1 / float64(len(u.replicas)-1)
		if replica == leader {
			share = 1
		}
		cores += share * u.seconds[i] / u.took.Seconds()
		bytes += share * (came[replica].control + came[replica].target)
	}
	fmt.Printf("%d renewals by the leader: late by p50 %s, p99 %s, at most %s; answered in p50 %s, p99 %s\n", len(late),
		percentile(late, 50), percentile(late, 99), percentile(late, 100), percentile(answers, 50), percentile(answers, 99))
	size := fmt.Sprintf("_of_%d_by_%d", machines, len(replicas))
	s["leader_rest_millicores"+size] = pair{value: 1e3 * cores}
	s["leader_rest_mb_per_minute"+size] = pair{value: bytes / 1e6 / took.Minutes()}
	s["leader_renewal_late_p99_seconds"+size] = pair{value: percentile(late, 99).Seconds()}
	return nil
}

// renewals returns by how much the time between each two renewals of a replica's session exceeded
// the interval, and how long the API server took for each.
func renewals(requests []harness.Request, replica string) (late, answers []time.Duration) {
	interval := membership.DefaultConfig().RenewEvery
	var previous time.Time
	for _, r := range requests {
		if r.Resource != "leases" || r.Name != membership.SessionLeaseName(harness.FleetName, replica) || !r.IsWrite() {
			continue
		}
		received := r.At.Add(-r.Took)
		if !previous.IsZero() {
			late = append(late, max(0, received.Sub(previous)-interval))
		}
		previous = received
		answers = append(answers, r.Took)
	}
	return late, answers
}
