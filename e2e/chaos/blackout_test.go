//go:build e2e

package chaos

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestBlackout: an API server is away for much longer than the health timeout. No machine is
// replaced or deleted, neither meanwhile nor when it is back, and all machines run within a minute
// of its return.
func TestBlackout(t *testing.T) {
	if testing.Short() {
		t.Skip("part of long runs")
	}
	t.Parallel()
	for _, server := range []string{"target-kube-apiserver", "kube-apiserver"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			blackout(t, server)
		})
	}
}

func blackout(t *testing.T, server string) {
	const pools, machines, away, healthTimeout = 10, 200, 10 * time.Minute, 2 * time.Minute
	b := newBedIn(t, slots, harness.Options{
		Clusters: 2, Replicas: 3, CloudsimFlags: cloudFlags, FleetFlags: fmt.Sprintf(
			"--machine-health-timeout=%s --machine-safety-apiserver-statuscheck-timeout=10s --machine-safety-apiserver-statuscheck-period=10s",
			healthTimeout),
	})
	for i := range pools {
		d := harness.Deployment(b.namespace, fmt.Sprintf("pool-%d", i), machines/pools)
		if _, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace).Create(b.ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.running(t, machines)
	before, healthy := b.uids(t), b.vms(t)

	b.recorder.Outage(b.ctx, t, func() {
		b.do(t, server, harness.Kill)
		b.wait(t, away)
		for _, replica := range []string{"fleet-0", "fleet-1", "fleet-2"} {
			if frozen, err := b.lab.Metric(b.ctx, replica, "mcm_machine_controller_frozen"); err != nil || frozen < 1 {
				t.Errorf("%s does not report that it is frozen: %v, %v", replica, frozen, err)
			}
		}
		b.do(t, server, harness.Start)
	})
	start := time.Now()
	b.running(t, machines)
	t.Logf("%d machines run %.1f s after %s was back, which had been away for %s", machines, time.Since(start).Seconds(), server, away)
	b.wait(t, healthTimeout+30*time.Second) // what was decided late would show by now
	b.alive(t, healthy)
	if after := b.uids(t); !maps.Equal(before, after) {
		t.Errorf("machines before %v, after %v", before, after)
	}
	b.end(t)
}
