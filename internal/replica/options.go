package replica

import (
	"path/filepath"
	"time"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// Options are the settings of a replica. defaultSettings returns those of a replica that is started without flags.
type Options struct {
	// Name is the name of this replica, which no other one of the fleet has.
	Name string
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	// ConcurrentSyncs is how many objects of a kind are worked on at the same time in one namespace.
	ConcurrentSyncs int

	Fleet   FleetOptions
	Machine MachineOptions
	Health  HealthOptions
	Drain   drain.Settings
	Safety  SafetyOptions
	Configs ConfigOptions

	// MetricsByMachine are the metrics with a series for each machine that are served.
	MetricsByMachine []string
	// MCMWorkqueueMetrics serves the metrics of work queues under their names in MCM, too.
	MCMWorkqueueMetrics bool
}

// DefaultOptions returns the settings of a replica that is started without flags. Its name and the namespace of the fleet's Leases follow from
// where it runs, and are empty.
func DefaultOptions() Options {
	return Options{
		ConcurrentSyncs:     200,
		MetricsByMachine:    telemetry.SeriesByFailedMachine(),
		MCMWorkqueueMetrics: true,
		Fleet: FleetOptions{
			Durations: member.DefaultConfig(),
			Name:      "fleet",
			Slots:     256,
			ShardBy:   string(assignment.ByDeployment),
			Capacity:  1,
		},
		Machine: MachineOptions{
			CreationTimeout:        20 * time.Minute,
			InPlaceUpdateTimeout:   20 * time.Minute,
			PreserveTimeout:        96 * time.Hour,
			ResourceExhaustedRetry: defaultResourceExhaustedRetry,
			ScaleDownAnnotation:    true,
			ComponentsTaint:        true,
		},
		Health: HealthOptions{
			Thresholds:       disruption.DefaultThresholds(),
			Timeout:          10 * time.Minute,
			NodeConditions:   []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"},
			DisruptionBudget: "1",
		},
		Drain: drain.Settings{
			Timeout:           2 * time.Hour,
			MaxEvictRetries:   360,
			DetachTimeout:     2 * time.Minute,
			ReattachTimeout:   90 * time.Second,
			VolumeParallelism: 4,
		},
		Safety: SafetyOptions{
			OrphanVMsPeriod:     15 * time.Minute,
			OrphanVMsQuarantine: 10 * time.Minute,
			MaxOrphanDeletions:  10,
			StatusCheckTimeout:  30 * time.Second,
			StatusCheckPeriod:   time.Minute,
			OvershootUp:         2,
			OvershootDown:       1,
			OvershootPeriod:     time.Minute,
		},
		Configs: ConfigOptions{
			Prefix: string(fleetv1alpha1.DaemonPrefix),
		},
	}
}

// FleetOptions are the flags of this replica's part in the fleet.
type FleetOptions struct {
	Name, Namespace string
	PodUID          string
	StateDir        string
	DebugHooks      bool
	DebugFaultPoint string
	Capacity        float64
	Slots           int
	ShardBy         string
	Durations       member.Config
}

// defaultResourceExhaustedRetry is also what 0 means, as in MCM.
const defaultResourceExhaustedRetry = 10 * time.Minute

// MachineOptions are the flags of a machine's life. MachineDeployments and Machines may override them.
type MachineOptions struct {
	CreationTimeout        time.Duration
	InPlaceUpdateTimeout   time.Duration
	PreserveTimeout        time.Duration
	ResourceExhaustedRetry time.Duration
	BootstrapTokenGroups   []string
	BootstrapTokenSigning  bool

	CountMinReady       bool
	ScaleDownAnnotation bool
	ComponentsTaint     bool
}

// HealthOptions are the flags of the health of machines, and of remediation.
type HealthOptions struct {
	Timeout          time.Duration
	NodeConditions   []string
	DisruptionBudget string
	Thresholds       disruption.Thresholds
}

// SafetyOptions are the flags of periodic checks.
type SafetyOptions struct {
	OrphanVMsPeriod            time.Duration
	OrphanVMsQuarantine        time.Duration
	MaxOrphanDeletions         int
	MaxDeletions               int
	DryRun                     bool
	StatusCheckTimeout         time.Duration
	StatusCheckPeriod          time.Duration
	OvershootUp, OvershootDown int
	OvershootPeriod            time.Duration
	DeletionLog                string
}

// ConfigOptions are the flags of machine configuration.
type ConfigOptions struct {
	Enabled    bool
	Prefix     string
	Extensions []string
	Templates  string
}

// Folder returns the folder with the templates; it is not ok if they are not in one.
func (o *ConfigOptions) Folder() (path string, ok bool) {
	return o.Templates, filepath.IsAbs(o.Templates)
}

// Spread finds the slot of a key.
func (o *FleetOptions) Spread() (assignment.Spread, error) {
	by, err := assignment.ParseShardBy(o.ShardBy)
	if err != nil {
		return assignment.Spread{}, err
	}
	return assignment.NewSpread(o.Slots, by)
}

// settings returns the settings of the protocol for this process.
func (o *FleetOptions) settings(replica, session string, exclusive bool) protocol.Settings {
	return protocol.Settings{
		Config: o.Durations, Assignment: assignment.DefaultConfig(), Fleet: o.Name, Namespace: o.Namespace,
		Replica: replica, Session: session, PodUID: o.PodUID, Exclusive: exclusive, Capacity: o.Capacity,
		Slots: o.Slots, ShardBy: o.ShardBy, RingVersion: assignment.RingVersion,
	}
}

// Limits are the settings that the decisions about machines need.
func (o *Options) Limits() lifecycle.Limits {
	limits := lifecycle.Limits{
		CreationTimeout: o.Machine.CreationTimeout, HealthTimeout: o.Health.Timeout, ResourceExhaustedRetry: o.Machine.ResourceExhaustedRetry,
		NodeConditions: o.Health.NodeConditions, PreserveTimeout: o.Machine.PreserveTimeout,
		InPlaceUpdateTimeout: o.Machine.InPlaceUpdateTimeout, Drain: o.Drain,
	}
	if limits.ResourceExhaustedRetry == 0 {
		limits.ResourceExhaustedRetry = defaultResourceExhaustedRetry
	}
	return limits
}
