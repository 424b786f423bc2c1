package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// measureManyRolls replaces a thousand machines, a fifth of them at a time, and measures how steady
// that is while the work exceeds the capacity of the lab.
func measureManyRolls(ctx context.Context, lab *harness.Lab, s sample) error {
	many := load{deployments: 20, machines: 50, surge: intstr.FromString("20%")}
	r, err := many.rollIn(ctx, lab, fmt.Sprintf("roll-many-%d", os.Getpid()))
	if err != nil {
		return err
	}
	finished, writes := r.replaced(), writeTimes(r.requests)
	if len(writes) == 0 {
		return fmt.Errorf("%d machines were replaced, and the audit logs have no write of the fleet", len(finished))
	}
	minutes := perMinute(finished)
	fmt.Printf("%d machines were replaced in %.1f s; minutes from second to second: %v; %d writes, the median took %s\n",
		len(finished), r.took().Seconds(), minutes, len(writes), percentile(writes, 50))
	fmt.Print(kinds(r.requests, many.total()))
	countRoll(r.requests, many.total(), "roll_1000_", s)
	s["roll_1000_longest_pause_seconds"] = pair{value: longestPause(finished).Seconds()}
	s["roll_1000_minutes_ratio_of_slowest"] = pair{value: unevenness(minutes)}
	s["roll_1000_write_p99_seconds"] = pair{value: percentile(writes, 99).Seconds()}
	return nil
}

// writeTimes are the times of the API servers for each of the fleet's own writes.
func writeTimes(requests []harness.Request) (took []time.Duration) {
	for _, r := range requests {
		if r.IsFleet() && r.IsWrite() {
			took = append(took, r.Took)
		}
	}
	return took
}
