package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
)

// The names of the checks of /livez and /readyz.
const (
	checkPing    = "ping"
	checkLoop    = "session-loop"
	checkLease   = "session-lease"
	checkLeases  = "leases"
	checkControl = "control-cluster"
	checkSlots   = "slots"
)

// Live answers /livez: nothing but progress of the process itself counts.
func (f *Replica) Live(context.Context) zpages.Report {
	return liveness(f.time.Moment().Since(f.replica.Beat()))
}

// liveness decides on /livez. silence is for how long the loop of the session has not answered.
func liveness(silence time.Duration) zpages.Report {
	loop := zpages.Check{Name: checkLoop}
	if silence > loopSilence/3 {
		loop.Err = fmt.Errorf("the loop of the session has not answered for %v", silence)
	}
	return zpages.Report{Checks: []zpages.Check{{Name: checkPing}, loop}}
}

// Ready answers /readyz.
func (f *Replica) Ready(ctx context.Context) zpages.Report {
	health, err := f.replica.Health(ctx)
	return readiness(health, err, f.slots.brokenOf(controlName))
}

// readiness decides on /readyz: the session may act, and what it needs of the control cluster is
// there. control names what that cluster does not deliver; "" for nothing. Target clusters and
// clouds do not count: the other work continues while one of them is away, and a rolling update of
// the fleet, which waits for each replica to be ready, must not stop for it.
func readiness(health shardsession.Health, loop error, control string) zpages.Report {
	checks := []zpages.Check{{Name: checkPing}, {Name: checkLoop, Err: loop}}
	if loop != nil {
		return zpages.Report{Checks: checks} // nothing else is known
	}
	return zpages.Report{
		Checks: append(checks,
			zpages.Check{Name: checkLease, Err: leaseError(health)},
			zpages.Check{Name: checkLeases, Err: leasesError(health.Fitness)},
			zpages.Check{Name: checkControl, Err: textError(control)},
			zpages.Check{Name: checkSlots, Err: slotsError(health.Waiting)},
		),
		Notes: awayTargets(health.Fitness, control),
	}
}

func leaseError(h shardsession.Health) error {
	if h.Suspended {
		return errors.New("the session does not hold its Lease, or its fence has passed")
	}
	return nil
}

func leasesError(f member.Fitness) error {
	if f.Acts && f.Observes {
		return nil
	}
	return textError(f.Reason)
}

// slotsError counts the slots that wait for objects of the control cluster, by kind.
func slotsError(waiting map[int]string) error {
	counts := map[string]int{}
	for _, kind := range waiting {
		if kind != nodesKind {
			counts[kind]++
		}
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d slots wait for their objects: %s", counts[kind], kind))
	}
	return textError(strings.Join(parts, "; "))
}

// awayTargets describes the target clusters that cannot be served, unless the control cluster is
// the reason.
func awayTargets(f member.Fitness, control string) (notes []string) {
	if control != "" || !f.Acts || !f.Observes {
		return nil
	}
	for _, target := range slices.Sorted(maps.Keys(f.Serves)) {
		if f.Serves[target] == member.Failing {
			notes = append(notes, fmt.Sprintf("target cluster %s: %s; readiness does not depend on it", target, f.Reason))
		}
	}
	return notes
}

func textError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}
