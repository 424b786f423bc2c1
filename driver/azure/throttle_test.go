package azure_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

const (
	// writesPerHour and writesAtOnce are the limit of the subscription, and writesPerCreate those of a
	// VM: its network interface and itself.
	writesPerHour, writesAtOnce = 1200, 50
	writesPerCreate             = 2
	throttledMachines           = 500
	throttledReplicas           = 3
)

// attempt is a create that is due.
type attempt struct {
	at      time.Time
	machine int
	step    time.Duration
}

// Replicas that share a subscription which is throttled create machines as fast as its limit
// allows, and few of their requests are refused. Each replica has its share, and waits as the fleet
// does: as long as the driver requests, and longer after each failure.
func TestReplicasShareALimit(t *testing.T) {
	s := serve(t, azuretest.Config{WritesPerHour: writesPerHour, Burst: writesAtOnce})
	var replicas [throttledReplicas]*azure.Driver
	for i := range replicas {
		replicas[i] = s.driver(t, func(cfg *azure.Config) { cfg.Share = func(context.Context) float64 { return 1.0 / throttledReplicas } })
	}
	begin := s.clock.Now()
	var waiting []attempt
	for i := range throttledMachines {
		waiting = append(waiting, attempt{at: begin, machine: i})
	}
	for len(waiting) > 0 {
		next := slices.MinFunc(waiting, func(a, b attempt) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.machine, b.machine)) })
		waiting = slices.DeleteFunc(waiting, func(a attempt) bool { return a.machine == next.machine })
		if next.at.After(s.clock.Now()) {
			s.clock.SetTime(next.at)
		}
		of := target(machine(fmt.Sprintf("m-%d", next.machine)), specOf(emptyDisk))
		_, err := create(t, replicas[next.machine%throttledReplicas], of)
		if err == nil {
			continue
		}
		if driver.CodeOf(err) != driver.Unavailable {
			t.Fatal(err)
		}
		const first, longest = 5 * time.Second, 3 * time.Minute // as in the fleet
		next.step = min(max(2*next.step, first), longest)
		next.at = s.clock.Now().Add(max(next.step, driver.RetryAfterOf(err)))
		waiting = append(waiting, next)
	}
	took := s.clock.Since(begin)
	stats := s.Stats()
	const writes = throttledMachines*writesPerCreate + 1 // and the agreement of the image
	fastest := time.Duration(writes-writesAtOnce) * time.Hour / writesPerHour
	ratio, refused := fastest.Seconds()/took.Seconds(), float64(stats.Refused)/float64(stats.Writes)
	t.Logf("%d machines in %s, the limit allows %s: ratio %.3f; %d of %d writes were refused, %.2f%%",
		throttledMachines, took.Round(time.Second), fastest.Round(time.Second), ratio, stats.Refused, stats.Writes, 100*refused)
	if stats.VMs != throttledMachines || ratio < 0.9 || refused > 0.02 {
		t.Errorf("%d VMs, ratio %.3f, refused %.4f; want %d, at least 0.9, and at most 0.02", stats.VMs, ratio, refused, throttledMachines)
	}
}
