package cloudsim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// dice decides what is left to chance.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// newDice returns dice that fall the same way for the same seed and stream.
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

// fault returns the first fault that matches the call and whose dice fall; nil when the call shall go well.
// Zone is "" for a call that is about no zone.
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

// fate decides what becomes of a VM that is accepted now and whose create is answered after latency.
func (d *dice) fate(s cloudapi.Settings, now time.Time, latency time.Duration) fate {
	boot := now.Add(latency + d.duration(s.BootTime))
	f := fate{BootAt: boot, JoinAt: boot}
	// All dice are thrown whatever the others say, so that one setting does not change what another one means.
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

// isBefore says whether the fault keeps a call from taking effect, or from more than a part of it.
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

// refusalFor is the answer of a fault that has one; nil for timeouts.
func refusalFor(f *cloudapi.Fault) *refusal {
	const asked = "a fault that was asked for"
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
		cloudapi.OpListVolumes, cloudapi.OpAttachVolume, cloudapi.OpDetachVolume, cloudapi.OpDeleteLeftovers, cloudapi.OpDescribeCatalog,
	}
}

func known(op cloudapi.Operation) bool { return slices.Contains(operations(), op) }
