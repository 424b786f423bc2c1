package cloudsim

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Config configures a Cloud.
type Config struct {
	// StateDir is the folder of the state; it is created if missing. One Cloud at a time may use it.
	StateDir string
	// CallLog is the file that calls are appended to.
	CallLog string
	// Settings are those to start with. Settings that were changed at run time in an earlier run with
	// this StateDir override them, provided that the cloud was started with the same Settings then.
	Settings cloudapi.Settings
	// Seed is the seed of all random decisions. The faults of the n-th VM depend on the seed and n
	// only.
	Seed uint64
	// Hosts run the VMs, by boot mode. A create with a mode that is missing is rejected; VMs of such a
	// mode from an earlier run are not changed.
	Hosts map[cloudapi.BootMode]guest.Host
	// KubeletNetwork is a /24 network of loopback addresses for the VMs with a kubelet. Without it all
	// of them have 127.0.0.1.
	KubeletNetwork netip.Prefix
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// Log is slog's default when nil.
	Log *slog.Logger
}

// DefaultSettings are a cloud without faults: creates and deletes take 200 ms, reads 5 ms, a boot 3
// s.
func DefaultSettings() cloudapi.Settings {
	const write, read = cloudapi.Duration(200 * time.Millisecond), cloudapi.Duration(5 * time.Millisecond)
	return cloudapi.Settings{
		Latency: map[cloudapi.Operation]cloudapi.Latency{
			cloudapi.OpCreateInstance: {Mean: write},
			cloudapi.OpDeleteInstance: {Mean: write},
			cloudapi.OpModifyInstance: {Mean: read},
			cloudapi.OpGetInstance:    {Mean: read},
			cloudapi.OpListInstances:  {Mean: read},
			cloudapi.OpCreateVolume:   {Mean: write},
			cloudapi.OpDeleteVolume:   {Mean: write},
			cloudapi.OpGetVolume:      {Mean: read},
			cloudapi.OpListVolumes:    {Mean: read},
			cloudapi.OpAttachVolume:   {Mean: write},
			cloudapi.OpDetachVolume:   {Mean: write},

			cloudapi.OpListLeftovers:   {Mean: read},
			cloudapi.OpDeleteLeftovers: {Mean: read},
			cloudapi.OpDeleteLeftover:  {Mean: write},
		},
		BootTime:           cloudapi.Latency{Mean: cloudapi.Duration(3 * time.Second)},
		PodTerminationTime: cloudapi.Duration(time.Second),
		RebootTime:         cloudapi.Duration(3 * time.Second),
		InPlaceUpdates: cloudapi.InPlaceUpdates{
			Result: cloudapi.UpdateSuccessful, Time: cloudapi.Duration(3 * time.Second), ComponentsTime: cloudapi.Duration(time.Second),
		},
	}
}

func (c *Config) complete() error {
	if c.StateDir == "" || c.CallLog == "" {
		return errors.New("cloudsim.Config: StateDir and CallLog are required")
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return validate(c.Settings, newCatalog())
}

// validate returns the errors of settings.
func validate(s cloudapi.Settings, offers catalog) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	share := func(name string, value float64) {
		if value < 0 || value > 1 {
			wrong("%s is %v; expected a share from 0 to 1", name, value)
		}
	}
	for op, latency := range s.Latency {
		if !known(op) {
			wrong("latency of unknown operation %q; there are %v", op, operations())
		}
		checkLatency(wrong, "latency of "+string(op), latency)
	}
	checkLatency(wrong, "bootTime", s.BootTime)
	checkLatency(wrong, "stopTime", s.StopTime)
	if s.ForgetAfter < 0 {
		wrong("forgetAfter is %v; expected 0 or more", time.Duration(s.ForgetAfter))
	}
	for i, fault := range s.Faults {
		name := fmt.Sprintf("faults[%d]", i)
		share(name+".rate", fault.Rate)
		if !knownFault(fault.Kind) {
			wrong("%s.kind is %q, which is no kind of fault", name, fault.Kind)
		}
		if fault.RetryAfter < 0 || fault.Hold < 0 {
			wrong("%s: retryAfter and hold cannot be negative", name)
		}
		for _, op := range fault.Operations {
			if !known(op) {
				wrong("%s: unknown operation %q; there are %v", name, op, operations())
			}
		}
		for _, zone := range fault.Zones {
			if !offers.hasZone(zone) {
				wrong("%s: unknown zone %q", name, zone)
			}
		}
	}
	for _, zone := range s.FailedZones {
		if !offers.hasZone(zone) {
			wrong("failedZones: unknown zone %q", zone)
		}
	}
	switch s.InPlaceUpdates.Result {
	case "", cloudapi.UpdateSuccessful, cloudapi.UpdateFailed, cloudapi.UpdateNever:
	default:
		wrong("inPlaceUpdates.result is %q; expected %s, %s or %s",
			s.InPlaceUpdates.Result, cloudapi.UpdateSuccessful, cloudapi.UpdateFailed, cloudapi.UpdateNever)
	}
	if s.RebootTime < 0 {
		wrong("rebootTime is %v; expected 0 or more", time.Duration(s.RebootTime))
	}
	if s.InPlaceUpdates.Time < 0 {
		wrong("inPlaceUpdates.time is %v; expected 0 or more", time.Duration(s.InPlaceUpdates.Time))
	}
	share("vmFaults.neverJoin", s.VMFaults.NeverJoin)
	share("vmFaults.joinLate", s.VMFaults.JoinLate)
	share("vmFaults.die", s.VMFaults.Die)
	share("vmFaults.loseReady", s.VMFaults.LoseReady)
	return errors.Join(errs...)
}

func checkLatency(wrong func(string, ...any), name string, l cloudapi.Latency) {
	if l.Mean < 0 || l.Spread < 0 {
		wrong("%s is %v ± %v; expected 0 or more", name, time.Duration(l.Mean), time.Duration(l.Spread))
	}
}
