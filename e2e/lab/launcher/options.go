package launcher

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options describe a lab.
type Options struct {
	// Dir is the folder of the lab.
	Dir string `json:"dir"`
	// Bin is the folder with hyperkube, cloudsim, machine-controller-fleet, and this program.
	Bin string `json:"bin"`
	// Clusters is 1, or 2 for a target cluster that is not the control cluster. Above 2 or with Light
	// it is the number of target clusters with a real API server, each of which belongs to a namespace
	// of the control cluster.
	Clusters int `json:"clusters"`
	// Light is the number of target clusters with a light API server, besides those.
	Light int `json:"light"`
	// Replicas of the fleet. With 0 nothing of the fleet is installed, neither its access nor the
	// CRDs: the Helm chart can do that.
	Replicas int `json:"replicas"`
	// Nodes with a real kubelet that belong to no machine, in the control cluster.
	Nodes int `json:"nodes"`
	// Restart is RestartAlways or RestartNever: whether a replica's process that ends by itself is
	// started again.
	Restart string `json:"restart"`
	// MachineConfiguration installs the kinds of fleet.machine.sapcloud.io in the target cluster,
	// enables the replicas' machine configuration, and has a machine-config-daemon configure each VM:
	// a real one where the kubelet is.
	MachineConfiguration bool `json:"machineConfiguration"`
	// DaemonFlags are passed on to the daemons, split at spaces.
	DaemonFlags string `json:"daemonFlags"`
	// Tracing adds a Jaeger, to which the replicas send their traces.
	Tracing bool `json:"tracing"`
	// TraceRatio of the roots whose lives the replicas trace, from 0 to 1, with Tracing.
	TraceRatio float64 `json:"traceRatio"`
	// CloudsimFlags and FleetFlags are passed on, split at spaces.
	CloudsimFlags string `json:"cloudsimFlags"`
	FleetFlags    string `json:"fleetFlags"`
	// CloudEndpoints are URLs of further clouds, split at commas, that the replicas may send requests
	// to.
	CloudEndpoints string `json:"cloudEndpoints"`
	// Clouds are those besides cloudsim, split at semicolons: NAME=PROGRAM FLAG …
	Clouds string `json:"clouds"`
	// Drivers are those in separate processes, split at semicolons: PROVIDER=PROGRAM FLAG …
	Drivers string `json:"drivers"`
}

// Whether a replica's process that ends by itself is started again.
const (
	// RestartAlways starts it again as a kubelet does, at once and later after a back-off.
	RestartAlways = "always"
	RestartNever  = "never"
)

// Bind declares the options as flags, with their defaults.
func (o *Options) Bind(flags *flag.FlagSet) {
	flags.IntVar(&o.Clusters, "clusters", 1,
		"`number` of clusters: 1, or 2 for a separate target cluster; above 2, or with --light, of target clusters with a namespace for each")
	flags.IntVar(&o.Light, "light", 0, "`number` of target clusters that are light, with a namespace for each: API servers in memory")
	flags.IntVar(&o.Replicas, "replicas", 3, "`number` of replicas of the fleet; with 0 nothing of it is installed, for the Helm chart")
	flags.IntVar(&o.Nodes, "nodes", 0, "`number` of Nodes of the control cluster that belong to no machine, with real kubelets")
	flags.StringVar(&o.Restart, "restart", RestartAlways,
		"`when` to start a replica's process again that ends by itself: always, as a kubelet does, or never")
	flags.BoolVar(&o.MachineConfiguration, "machine-configuration", false,
		"enable machine configuration: its kinds in the target cluster, the replicas' part, and a machine-config-daemon for each VM")
	flags.StringVar(&o.DaemonFlags, "daemon-flags", "", "with --machine-configuration, `flags` for machine-config-daemon, split at spaces")
	flags.BoolVar(&o.Tracing, "tracing", false, "start a Jaeger, and send it traces")
	flags.Float64Var(&o.TraceRatio, "trace-ratio", 1,
		"with --tracing, `ratio` of the MachineDeployments whose machines are traced, from 0 to 1")
	flags.StringVar(&o.CloudsimFlags, "cloudsim-flags", "", "`flags` for cloudsim, split at spaces")
	flags.StringVar(&o.FleetFlags, "fleet-flags", "", "`flags` for the fleet, split at spaces; $(NUMBER) is that of the replica, from 0")
	flags.StringVar(&o.CloudEndpoints, "cloud-endpoints", "", "`URLs` of further clouds, split at commas, that Secrets may name")
	flags.StringVar(&o.Clouds, "clouds", "", "`commands` of clouds whose VMs cloudsim runs, split at semicolons: NAME=PROGRAM FLAG …, "+
		"with the program in --bin; --listen, --certificate and --cloudsim are added")
	flags.StringVar(&o.Drivers, "drivers", "",
		"`commands` of drivers for other providers than simulated, split at semicolons: PROVIDER=PROGRAM FLAG …, with the program in --bin; "+
			"{cloud} in a flag is the URL of cloudsim, {NAME} and {NAME.pem} are URL and certificate of one of --clouds, and --socket is added")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of the binaries (default: the one of this program)")
}

// Complete makes paths absolute and sets the defaults.
func (o *Options) Complete() error {
	if o.Bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the folder of this program (give it with --bin): %w", err)
		}
		o.Bin = filepath.Dir(self)
	}
	for _, path := range []*string{&o.Bin, &o.Dir} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("the absolute path of %q: %w", *path, err)
		}
		*path = absolute
	}
	return nil
}

// Validate returns the errors of the options.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, o.validateClusters())
	if o.Replicas < 0 || o.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("--replicas: expected 0 to %d, got %d", maxReplicas, o.Replicas))
	}
	if o.Nodes < 0 || o.Nodes > mostNodes {
		errs = append(errs, fmt.Errorf("--nodes: expected 0 to %d, got %d", mostNodes, o.Nodes))
	}
	if o.Nodes > 0 && o.twoClusters() {
		errs = append(errs, fmt.Errorf("--nodes=%d: expected one cluster: the VMs of the lab's cloud join the target cluster", o.Nodes))
	}
	if o.Restart != RestartAlways && o.Restart != RestartNever {
		errs = append(errs, fmt.Errorf("--restart: expected %s or %s, got %q", RestartAlways, RestartNever, o.Restart))
	}
	if o.Tracing && !(o.TraceRatio >= 0 && o.TraceRatio <= 1) {
		errs = append(errs, fmt.Errorf("--trace-ratio: expected a number from 0 to 1, got %g", o.TraceRatio))
	}
	commands := map[string]string{
		hyperkubeBinary: "make build", cloudsimBinary: "make build", fleetBinary: "make build", driverBinary: "make build",
	}
	if o.Tracing {
		commands[jaegerBinary] = "make build-jaeger"
	}
	if o.MachineConfiguration {
		commands[daemonBinary] = "make build"
	}
	if o.DaemonFlags != "" && (!o.MachineConfiguration || strings.Contains(o.DaemonFlags, ",")) {
		errs = append(errs,
			fmt.Errorf("--daemon-flags=%q: expected it with --machine-configuration and without commas, at which a VM splits them", o.DaemonFlags))
	}
	drivers, err := o.driverProcesses()
	errs = append(errs, err)
	if slices.ContainsFunc(drivers, func(d command) bool { return d.name == simulatedProvider }) {
		errs = append(errs,
			fmt.Errorf("--drivers: expected other providers than %s, whose driver each replica has; use another name, such as side",
				simulatedProvider))
	}
	clouds, err := o.cloudProcesses()
	errs = append(errs, err)
	for _, c := range slices.Concat(clouds, drivers) {
		commands[c.program] = "make build, make build-azure, or its own build"
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		if _, err := os.Stat(o.binary(name)); err != nil {
			errs = append(errs, fmt.Errorf("the binary %s is missing (%s): %w", name, commands[name], err))
		}
	}
	return errors.Join(errs...)
}

// validateClusters returns the errors of what a landscape has.
func (o *Options) validateClusters() error {
	var errs []error
	if o.Clusters < 0 || o.Clusters > mostClusters || o.Clusters == 0 && o.Light == 0 {
		errs = append(errs, fmt.Errorf("--clusters: expected 1 to %d, or 0 with --light, got %d", mostClusters, o.Clusters))
	}
	if o.Light < 0 || o.Light > mostLight {
		errs = append(errs, fmt.Errorf("--light: expected 0 to %d, got %d", mostLight, o.Light))
	}
	if o.landscape() && (o.Replicas == 0 || o.Nodes > 0) {
		errs = append(errs, errors.New("--clusters above 2, or --light: expected it with --replicas, and without --nodes"))
	}
	return errors.Join(errs...)
}

// How many target clusters a landscape may have. A real one takes about 400 MB.
const mostClusters, mostLight = 50, 1000

// landscape reports whether each target cluster belongs to a namespace.
func (o *Options) landscape() bool { return o.Clusters > 2 || o.Light > 0 }

// Binaries of a lab; jaegerBinary is another.
const (
	hyperkubeBinary = "hyperkube"
	cloudsimBinary  = "cloudsim"
	driverBinary    = "simulated-driver"
	fleetBinary     = "machine-controller-fleet"
	daemonBinary    = "machine-config-daemon"
)

func (o *Options) binary(name string) string { return filepath.Join(o.Bin, name) }

func (o *Options) folder() Folder { return Folder(o.Dir) }

func (o *Options) twoClusters() bool { return o.Clusters == 2 && !o.landscape() }

// String returns the flags for a lab like this.
func (o *Options) String() string {
	text := []string{fmt.Sprintf("--clusters=%d --replicas=%d --restart=%s", o.Clusters, o.Replicas, o.Restart)}
	if o.Light > 0 {
		text = append(text, fmt.Sprintf("--light=%d", o.Light))
	}
	if o.Nodes > 0 {
		text = append(text, fmt.Sprintf("--nodes=%d", o.Nodes))
	}
	if o.Tracing {
		text = append(text, fmt.Sprintf("--tracing --trace-ratio=%g", o.TraceRatio))
	}
	if o.MachineConfiguration {
		text = append(text, fmt.Sprintf("--machine-configuration --daemon-flags=%q", o.DaemonFlags))
	}
	if o.CloudsimFlags != "" {
		text = append(text, fmt.Sprintf("--cloudsim-flags=%q", o.CloudsimFlags))
	}
	if o.FleetFlags != "" {
		text = append(text, fmt.Sprintf("--fleet-flags=%q", o.FleetFlags))
	}
	if o.CloudEndpoints != "" {
		text = append(text, "--cloud-endpoints="+o.CloudEndpoints)
	}
	if o.Clouds != "" {
		text = append(text, fmt.Sprintf("--clouds=%q", o.Clouds))
	}
	if o.Drivers != "" {
		text = append(text, fmt.Sprintf("--drivers=%q", o.Drivers))
	}
	return strings.Join(text, " ")
}
