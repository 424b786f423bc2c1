package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// measureRolls replaces all machines one after the other, in each MachineDeployment at the same
// time, first by the fleet and then by the plain loop.
func measureRolls(ctx context.Context, lab *harness.Lab, s sample) error {
	l := load{deployments: deployments, machines: machines, surge: intstr.FromInt32(1)}
	r, err := l.rollIn(ctx, lab, fmt.Sprintf("roll-%d", os.Getpid()))
	if err != nil {
		return err
	}
	countRoll(r.requests, total, "roll_", s)
	fmt.Print(kinds(r.requests, total))
	if err := toReplicas(ctx, lab, harness.Pause); err != nil { // they would reconcile the floor's objects
		return err
	}
	floor, err := measureRollFloor(ctx, lab, fmt.Sprintf("floor-roll-%d", os.Getpid()))
	if err := errors.Join(err, toReplicas(ctx, lab, harness.Resume)); err != nil {
		return err
	}
	s["roll_100_seconds"] = pair{value: r.took().Seconds(), floor: floor.Seconds()}
	return nil
}

// countRoll counts requests by machine, for rows with the prefix.
func countRoll(requests []harness.Request, machines int, prefix string, s sample) {
	rows := map[string]float64{}
	for _, r := range requests {
		if !counts(r) {
			continue
		}
		what := "reads"
		if r.IsWrite() {
			what = "writes"
		}
		switch {
		case r.IsFleet() && r.IsToken() && r.IsWrite():
			rows["token_writes"]++
		case r.IsFleet():
			rows[what]++
		}
		rows["all_"+what]++
	}
	floor := map[string]float64{"writes": floorCreateWrites + floorDeleteWrites, "token_writes": floorTokenWrites}
	for what, n := range rows {
		s[prefix+what+"_per_machine"] = pair{value: n / float64(machines), floor: floor[what]}
	}
}
