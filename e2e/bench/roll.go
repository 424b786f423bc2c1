package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// measureRolls replaces all machines one after the other, in each MachineDeployment at the same time, first by the fleet and then
// by the plain loop.
func measureRolls(ctx context.Context, lab *harness.Lab, s sample) error {
	l := load{deployments: deployments, machines: machines, surge: intstr.FromInt32(1)}
	r, err := l.rollIn(ctx, lab, fmt.Sprintf("roll-%d", os.Getpid()))
	if err != nil {
		return err
	}
	countRoll(r.requests, s)
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

// countRoll counts requests by machine.
func countRoll(requests []harness.Request, s sample) {
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
			rows["roll_token_writes_per_machine"]++
		case r.IsFleet():
			rows["roll_"+what+"_per_machine"]++
		}
		rows["roll_all_"+what+"_per_machine"]++
	}
	floor := map[string]float64{
		"roll_writes_per_machine": floorCreateWrites + floorDeleteWrites, "roll_token_writes_per_machine": floorTokenWrites,
	}
	for name, n := range rows {
		s[name] = pair{value: n / total, floor: floor[name]}
	}
}
