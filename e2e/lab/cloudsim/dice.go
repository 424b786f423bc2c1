package cloudsim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// dice makes the random decisions.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// newDice returns dice that decide the same for the same seed and stream.
func newDice(seed, stream uint64) *dice {
	return &dice{rng: rand.New(rand.NewPCG(seed, stream))} //nolint:gosec // repeatable on purpose
}

// fall returns true with the given probability.
func (d *dice) fall(probability float64) bool {
	if probability <= 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < probability
}

// duration draws from a normal distribution, cut off at 0.
func (d *dice) duration(l cloudapi.Latency) time.Duration {
	if l.Spread == 0 {
		return time.Duration(l.Mean)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, time.Duration(float64(l.Mean)+d.rng.NormFloat64()*float64(l.Spread)))
}

// fault returns the first fault that matches the call and whose Rate applies; nil for a call
// without a fault. Zone is "" for a call without a zone.
func (d *dice) fault(faults []cloudapi.Fault, op cloudapi.Operation, zone string) *cloudapi.Fault {
	for i, f := range faults {
		matches := (len(f.Operations) == 0 || slices.Contains(f.Operations, op)) &&
			(len(f.Zones) == 0 || slices.Contains(f.Zones, zone))
		if matches && d.fall(f.Rate) {
			return &faults[i]
		}
	}
	return nil
}

// fate decides about the faults of a VM that is accepted now and whose create is answered after
// latency.
func (d *dice) fate(s cloudapi.Settings, now time.Time, latency time.Duration) fate {
	boot := now.Add(latency + d.duration(s.BootTime))
	f := fate{BootAt: boot, JoinAt: boot}
	// All random numbers are drawn in each case, so that one setting does not change the effect of
	// another one.
	never, late, die, lose := d.fall(s.VMFaults.NeverJoin), d.fall(s.VMFaults.JoinLate), d.fall(s.VMFaults.Die), d.fall(s.VMFaults.LoseReady)
	if late {
		f.JoinAt = boot.Add(time.Duration(s.VMFaults.JoinDelay))
	}
	if never {
		f.JoinAt = time.Time{}
	}
	if die {
		f.DieAt = boot.Add(time.Duration(s.VMFaults.DieAfter))
	}
	if lose {
		f.LoseReadyAt = boot.Add(time.Duration(s.VMFaults.LoseReadyAfter))
	}
	return f
}

// isBefore reports whether the fault keeps a call from taking effect, or from more than a part of
// it.
func isBefore(kind cloudapi.FaultKind) bool { return kind != cloudapi.FaultTimeoutAfter }

func knownFault(kind cloudapi.FaultKind) bool {
	switch kind {
	case cloudapi.FaultThrottled, cloudapi.FaultQuota, cloudapi.FaultNoCapacity, cloudapi.FaultInternal,
		cloudapi.FaultUnavailable, cloudapi.FaultUnauthorized, cloudapi.FaultForbidden, cloudapi.FaultTimeoutBefore,
		cloudapi.FaultTimeoutAfter, cloudapi.FaultPartial:
		return true
	}
	return false
}

// refusalFor returns the answer of a fault that has one; nil for timeouts.
func refusalFor(f *cloudapi.Fault) *refusal {
	const asked = "an injected fault"
	switch f.Kind {
	case cloudapi.FaultThrottled:
		r := refuse(cloudapi.CodeThrottled, "too many requests: "+asked)
		r.retryAfter = time.Duration(f.RetryAfter)
		return r
	case cloudapi.FaultQuota:
		return refuse(cloudapi.CodeQuotaExceeded, "the quota is used up: "+asked)
	case cloudapi.FaultNoCapacity:
		return refuse(cloudapi.CodeNoCapacity, "no capacity is left: "+asked)
	case cloudapi.FaultInternal:
		return refuse(cloudapi.CodeInternal, "internal error: "+asked)
	case cloudapi.FaultUnavailable:
		return refuse(cloudapi.CodeUnavailable, "the service is not available: "+asked)
	case cloudapi.FaultUnauthorized:
		return refuse(cloudapi.CodeUnauthorized, "the credentials are not valid: "+asked)
	case cloudapi.FaultForbidden:
		return refuse(cloudapi.CodeForbidden, "the credentials do not allow this: "+asked)
	case cloudapi.FaultPartial:
		return refuse(cloudapi.CodeInternal, "internal error, after a part was done: "+asked)
	case cloudapi.FaultTimeoutBefore, cloudapi.FaultTimeoutAfter:
	}
	return nil
}

// operations lists the operations of the cloud.
func operations() []cloudapi.Operation {
	return []cloudapi.Operation{
		cloudapi.OpCreateInstance, cloudapi.OpDeleteInstance, cloudapi.OpGetInstance, cloudapi.OpListInstances,
		cloudapi.OpModifyInstance, cloudapi.OpCreateVolume, cloudapi.OpDeleteVolume, cloudapi.OpGetVolume,
		cloudapi.OpListVolumes, cloudapi.OpAttachVolume, cloudapi.OpDetachVolume, cloudapi.OpListLeftovers,
		cloudapi.OpDeleteLeftovers, cloudapi.OpDeleteLeftover, cloudapi.OpDescribeCatalog,
	}
}

func known(op cloudapi.Operation) bool { return slices.Contains(operations(), op) }
