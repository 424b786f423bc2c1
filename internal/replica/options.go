package replica

import (
	"net/netip"
	"path/filepath"
	"time"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// Options are the settings of a replica, each with a flag of cmd/machine-controller-fleet.
// DefaultOptions returns those of a replica that is started without flags.
type Options struct {
	// Name is the name of this replica, which no other one of the fleet has.
	Name string
	// Namespace is the only namespace that is served; "" means all. NamespaceSelector is a label
	// selector of those that are served; "" means all, others need FleetOptions.ShardBy of a
	// namespace.
	Namespace, NamespaceSelector string
	// ConcurrentSyncs is how many objects of a kind are worked on at the same time in one namespace.
	ConcurrentSyncs int

	// DeploymentSwitch has the Deployment machine-controller-manager of each namespace switch it on
	// and off: without the Deployment it is off.
	DeploymentSwitch bool

	// Targets is where the target clusters of namespaces are found, if there is none for all of them.
	Targets TargetOptions

	Fleet   FleetOptions
	Machine MachineOptions
	Health  HealthOptions
	Drain   drain.Settings
	Safety  SafetyOptions
	Configs ConfigOptions

	// ServeAutoscalers has the replica answer cluster-autoscalers.
	ServeAutoscalers bool
	// ServePage has the replica read the objects that the page of the fleet shows, while it is open.
	ServePage bool

	// MetricsByMachine are the metrics with a series for each machine that are served.
	MetricsByMachine []string
	// MCMWorkqueueMetrics serves the metrics of work queues under their names in MCM, too.
	MCMWorkqueueMetrics bool
}

// DefaultOptions returns the settings of a replica that is started without flags. Its name and the
// namespace of the fleet's Leases follow from where it runs, and are empty.
func DefaultOptions() Options {
	return Options{
		ConcurrentSyncs:     200,
		MetricsByMachine:    telemetry.SeriesByFailedMachine(),
		MCMWorkqueueMetrics: true,
		ServePage:           true,
		Targets: TargetOptions{
			Select:  bynamespace.Selection{Secret: "machine-controller-fleet-target"},
			Refused: access.Local(),
		},
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

// TargetOptions are the settings of target clusters that Secrets of namespaces name.
type TargetOptions struct {
	// ByNamespace gives each namespace the target cluster that its Secrets name. It needs
	// FleetOptions.ShardBy of a namespace.
	ByNamespace bool
	// Select selects the Secrets.
	Select bynamespace.Selection
	// Refused are networks that no API server of a target cluster may be in, and no proxy to one.
	Refused []netip.Prefix
}

// FleetOptions are the settings of this replica's part in the fleet.
type FleetOptions struct {
	// Name is the prefix of the fleet's Leases, and Namespace where they are.
	Name, Namespace string
	// PodUID is the UID of the pod that this runs in; "" means none. StateDir is a folder of that
	// pod's own for a file lock, which proves the end of an earlier process of the pod; "" means none.
	// With both a restarted process has its slots back at once.
	PodUID, StateDir string
	// DebugHooks serves fault points, which stop requests, for tests of the fleet. DebugFaultPoint
	// stops all work whose name contains it from the start on; "" stops none.
	DebugHooks      bool
	DebugFaultPoint string
	// Capacity is how much this replica should hold, in relation to the others; more than 0.
	Capacity float64
	// Slots is how many slots the work is divided into, at most assignment.MaxSlots. ShardBy states
	// which objects are in one slot: it is the text of an assignment.ShardBy. Both are the same in all
	// replicas, and fixed when the fleet is installed.
	Slots   int
	ShardBy string
	// Durations are the times of the protocol.
	Durations member.Config
}

// defaultResourceExhaustedRetry is also what 0 means, as in MCM.
const defaultResourceExhaustedRetry = 10 * time.Minute

// MachineOptions are the settings of a machine's life. MachineDeployments and Machines may override
// them.
type MachineOptions struct {
	// CreationTimeout is how long a machine may take to become a healthy Node, InPlaceUpdateTimeout
	// how long an update in place may take after the drain; 0 gives no time at all.
	CreationTimeout, InPlaceUpdateTimeout time.Duration
	// PreserveTimeout is how long a machine is preserved; 0 ends it at once.
	PreserveTimeout time.Duration
	// ResourceExhaustedRetry is the wait after the cloud had no quota or capacity; 0 means 10 min.
	ResourceExhaustedRetry time.Duration
	// BootstrapTokenGroups are the groups that bootstrap tokens put a VM into. BootstrapTokenSigning
	// lets tokens sign the ConfigMap cluster-info.
	BootstrapTokenGroups  []string
	BootstrapTokenSigning bool

	// CountMinReady makes machines count as available only after minReadySeconds.
	CountMinReady bool
	// ScaleDownAnnotation keeps the cluster-autoscaler from removing Nodes during a rollout.
	ScaleDownAnnotation bool
	// ComponentsTaint adds v1alpha1.TaintCriticalComponentsNotReady to a Node that was updated in
	// place.
	ComponentsTaint bool
}

// HealthOptions are the settings of the health of machines, and of remediation.
type HealthOptions struct {
	// Timeout is how long a machine may be unhealthy before it has failed; 0 means at once.
	Timeout time.Duration
	// NodeConditions are types of Node conditions that have to be False on a healthy Node.
	NodeConditions []string
	// DisruptionBudget is how many machines of a MachineDeployment may be on their way out or in for
	// an unhealthy one to be replaced: a number, or a percentage of its replicas.
	DisruptionBudget string
	// Thresholds are those of circuit breakers.
	Thresholds disruption.Thresholds
}

// SafetyOptions are the settings of periodic checks, and of the limits on deletions.
type SafetyOptions struct {
	// OrphanVMsPeriod is the time between two sweeps of a namespace; 0 switches them off, and the
	// search for Nodes without a machine. OrphanVMsQuarantine is how long a resource must have
	// belonged to no machine before it is deleted.
	OrphanVMsPeriod, OrphanVMsQuarantine time.Duration
	// MaxOrphanDeletions is how many orphans of a namespace are deleted in an hour without an
	// approval.
	MaxOrphanDeletions int
	// MaxDeletions is the deletion budget of a namespace in an hour; 0 means any number.
	MaxDeletions int
	// DryRun reports orphans without deleting them.
	DryRun bool
	// StatusCheckTimeout is how long an API server may not answer before it is away, StatusCheckPeriod
	// the time between two checks of it.
	StatusCheckTimeout, StatusCheckPeriod time.Duration
	// OvershootUp is how many machines more than ordered freeze a MachineSet that creates another one;
	// OvershootDown how many fewer than that end the freeze.
	OvershootUp, OvershootDown int
	// OvershootPeriod is the time between two counts of the machines of a namespace; 0 never counts
	// them.
	OvershootPeriod time.Duration
	// DeletionLog is a file for a line of JSON for each deletion; "-" means standard output, "" none.
	DeletionLog string
}

// ConfigOptions are the settings of machine configuration.
type ConfigOptions struct {
	// Enabled brings Nodes to the configuration of their pool; it needs a target cluster.
	Enabled bool
	// Prefix is that of the annotations through which the fleet and the machine-config-daemon work
	// together.
	Prefix string
	// Extensions are the names of the extensions that a MachineConfig may have.
	Extensions []string
	// Templates are those of MachineConfigs: NAMESPACE/NAME of a ConfigMap, or the absolute path of a
	// folder; "" means none.
	Templates string
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
