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

// Options say what a lab consists of.
type Options struct {
	// Dir is the folder of the lab.
	Dir string `json:"dir"`
	// Bin is the folder with hyperkube, cloudsim, machine-controller-fleet, and this program.
	Bin string `json:"bin"`
	// Clusters is 1, or 2 for a target cluster that is not the control cluster.
	Clusters int `json:"clusters"`
	// Replicas of the fleet.
	Replicas int `json:"replicas"`
	// Restart is RestartAlways or RestartNever: what becomes of a replica's process that ends unasked.
	Restart string `json:"restart"`
	// Tracing adds a Jaeger, and has the replicas send it their traces.
	Tracing bool `json:"tracing"`
	// CloudsimFlags and FleetFlags are passed on, split at spaces.
	CloudsimFlags string `json:"cloudsimFlags"`
	FleetFlags    string `json:"fleetFlags"`
	// CloudEndpoints are URLs of further clouds, split at commas, that the replicas may send requests to.
	CloudEndpoints string `json:"cloudEndpoints"`
}

// What becomes of a replica's process that ends unasked.
const (
	// RestartAlways starts it again as a kubelet does, at once and later after a back-off.
	RestartAlways = "always"
	RestartNever  = "never"
)

// Bind makes the options flags, and sets their defaults.
func (o *Options) Bind(flags *flag.FlagSet) {
	flags.IntVar(&o.Clusters, "clusters", 1, "`number` of clusters: 1, or 2 for a target cluster of its own")
	flags.IntVar(&o.Replicas, "replicas", 3, "`number` of replicas of the fleet")
	flags.StringVar(&o.Restart, "restart", RestartAlways, "`when` to start a replica's process again that ends unasked: always, as a kubelet does, or never")
	flags.BoolVar(&o.Tracing, "tracing", false, "start a Jaeger, and send it traces")
	flags.StringVar(&o.CloudsimFlags, "cloudsim-flags", "", "`flags` for cloudsim, split at spaces")
	flags.StringVar(&o.FleetFlags, "fleet-flags", "", "`flags` for the fleet, split at spaces")
	flags.StringVar(&o.CloudEndpoints, "cloud-endpoints", "", "`URLs` of further clouds, split at commas, that Secrets may name")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of the binaries (default: the one of this program)")
}

// Complete makes paths absolute and fills in what was left open.
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

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Clusters != 1 && o.Clusters != 2 {
		errs = append(errs, fmt.Errorf("--clusters=%d: it must be 1 or 2", o.Clusters))
	}
	if o.Replicas < 1 || o.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("--replicas=%d: it must be between 1 and %d", o.Replicas, maxReplicas))
	}
	if o.Restart != RestartAlways && o.Restart != RestartNever {
		errs = append(errs, fmt.Errorf("--restart=%q: it must be %s or %s", o.Restart, RestartAlways, RestartNever))
	}
	makers := map[string]string{hyperkubeBinary: "make build", cloudsimBinary: "make build", fleetBinary: "make build"}
	if o.Tracing {
		makers[jaegerBinary] = "hack/build-jaeger.sh"
	}
	for _, name := range slices.Sorted(maps.Keys(makers)) {
		if _, err := os.Stat(o.binary(name)); err != nil {
			errs = append(errs, fmt.Errorf("the binary %s is missing (%s): %w", name, makers[name], err))
		}
	}
	return errors.Join(errs...)
}

// Binaries of a lab; jaegerBinary is another.
const (
	hyperkubeBinary = "hyperkube"
	cloudsimBinary  = "cloudsim"
	fleetBinary     = "machine-controller-fleet"
)

func (o *Options) binary(name string) string { return filepath.Join(o.Bin, name) }

func (o *Options) folder() Folder { return Folder(o.Dir) }

func (o *Options) twoClusters() bool { return o.Clusters == 2 }

// String is what a user would have to give for a lab like this.
func (o *Options) String() string {
	text := []string{fmt.Sprintf("--clusters=%d --replicas=%d --restart=%s", o.Clusters, o.Replicas, o.Restart)}
	if o.Tracing {
		text = append(text, "--tracing")
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
	return strings.Join(text, " ")
}
