package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

// options are the flags. Names and defaults are those of Machine Controller Manager where it has the flag; where the
// default is another one, the usage states it.
type options struct {
	controlKubeconfig, targetKubeconfig string
	namespace                           string
	qps                                 float64
	burst                               int

	concurrentSyncs         int
	simulatedCloudEndpoints []string
	driverSockets           []string

	replicaName string
	fleet       fleetOptions
	machine     machineOptions
	health      healthOptions
	drain       drain.Settings
	safety      safetyOptions
	configs     machineConfigOptions
	keepTraces  telemetry.Keep
	logs        logOptions

	address                        string
	port                           int
	tlsCertFile, tlsKeyFile        string
	tlsSelfSigned                  bool
	metricsAuthorization           bool
	metricsByMachine               []string
	mcmWorkqueueMetrics            bool
	profiling, contentionProfiling bool

	// values are all flags, as /flagz shows them.
	values []zpages.Row
	// ineffective are the flags that were set and have no effect.
	ineffective []flags.Ineffective
}

// allMetrics as a value of --metrics-by-machine means all of these metrics.
const allMetrics = "all"

// noTarget as a value of --target-kubeconfig means that there is no target cluster.
const noTarget = "none"

// declare declares all flags. Nothing here depends on where the process runs: help is the same everywhere.
func (o *options) declare(cmd *cobra.Command) *flags.Set {
	set := flags.New(cmd)
	set.Group("Configuration file").Config()
	o.declareClusters(set.Group("Clusters"))
	o.fleet.declare(set.Group("Fleet"), &o.replicaName)
	o.machine.declare(set.Group("Machines"))
	o.health.declare(set.Group("Health"))
	declareDrain(set.Group("Drain"), &o.drain)
	o.safety.declare(set.Group("Safety"))
	o.configs.declare(set.Group("Machine configuration"))
	o.declareServing(set.Group("Work, metrics and debugging"))
	o.logs.declare(set.Group("Logs"))
	declareTraces(set.Group("Traces"), &o.keepTraces)
	declareIgnored(set.Group("Flags of Machine Controller Manager that are accepted and ignored"))
	return set
}

func (o *options) declareClusters(g *flags.Group) {
	g.String(&o.controlKubeconfig, "control-kubeconfig", "", "kubeconfig of the cluster with the Machine objects; empty means that of the target, inClusterConfig means the one that this runs in")
	g.String(&o.targetKubeconfig, "target-kubeconfig", "", "kubeconfig of the cluster that the VMs join; empty means the one that this runs in, none means that there is no such cluster")
	g.String(&o.namespace, "namespace", "", "the only namespace of the control cluster to serve; empty means all (MCM: default)")
	g.Float(&o.qps, "kube-api-qps", 0, "requests a second to each API server; 0 leaves the pace to the server's priority and fairness (MCM: 20)", flags.OrZero)
	g.Int(&o.burst, "kube-api-burst", 30, "requests that may be made at once beyond --kube-api-qps", flags.OrZero)
	g.List(&o.simulatedCloudEndpoints, "simulated-cloud-endpoint", nil, "URLs, separated by commas, of all simulated clouds that requests and credentials may go to; the first is for classes whose Secret names none; empty means that there is no driver for provider simulated")
	g.List(&o.driverSockets, "driver-socket", nil, "drivers in processes of their own, separated by commas, each as PROVIDER=PATH: the value of MachineClass.provider, and the absolute path of the unix socket on which the driver listens")
}

func (o *options) declareServing(g *flags.Group) {
	g.Int(&o.concurrentSyncs, "concurrent-syncs", 200, "how many objects of a kind are worked on at the same time in one namespace, four times as many in all, and how many calls of drivers are in flight with one set of credentials; no worker waits for a cloud to finish or a Node to drain, and so an idle one costs nothing (MCM: 10 and 50)")
	g.String(&o.address, "address", "0.0.0.0", "IP address to serve metrics and health on")
	g.Int(&o.port, "port", 10258, "port to serve metrics and health on (MCM: 10259 for the machine controller)")
	g.String(&o.tlsCertFile, "tls-cert-file", "", "file with a certificate and its chain, PEM, to serve metrics and health over HTTPS, TLS 1.3; read again when it changes; empty means HTTP")
	g.String(&o.tlsKeyFile, "tls-private-key-file", "", "file with the private key of --tls-cert-file, PEM; empty means none")
	g.Bool(&o.tlsSelfSigned, "tls-self-signed", false, "serve metrics and health over HTTPS with a certificate that this process makes for itself, which no client can verify: tokens of readers are not sent in clear text; not with --tls-cert-file")
	g.Bool(&o.metricsAuthorization, "metrics-authorization", false, "serve metrics and /debug only to those with a bearer token whom the control cluster's RBAC lets read them (nonResourceURLs); health is served to all; without it metrics are served to all, and /debug on loopback addresses only")
	g.List(&o.metricsByMachine, "metrics-by-machine", telemetry.SeriesByFailedMachine(), "names, separated by commas, of the metrics with a series for each machine that are served: "+strings.Join(telemetry.SeriesByMachine(), ", ")+"; "+allMetrics+" means all of them, empty none; the default are those of machines that have failed")
	g.Bool(&o.mcmWorkqueueMetrics, "mcm-workqueue-metrics", true, "serve the metrics of work queues under their names in MCM, mcm_workqueue_…, in addition to workqueue_…; they are a quarter of the series of a small fleet")
	g.Bool(&o.profiling, "profiling", false, "serve profiles of the process at /debug/pprof/")
	g.Bool(&o.contentionProfiling, "contention-profiling", false, "profile where goroutines wait for locks, too; needs --profiling")
	g.Bool(&o.fleet.debugHooks, "debug-hooks", false, "serve /debug/faultpoints, which stops requests on their way, and profiles; for tests of the fleet only")
	g.String(&o.fleet.debugFaultPoint, "debug-fault-point", "", "with --debug-hooks, stop all work whose name contains this from the start on; empty stops none")
}

// complete reads the file that the command line names, sets the defaults that come from the environment, and checks the options.
func (o *options) complete(set *flags.Set) error {
	if err := set.Complete(); err != nil {
		return err
	}
	if o.replicaName == "" {
		var err error
		if o.replicaName, err = os.Hostname(); err != nil {
			return fmt.Errorf("--replica-name: expected a name, got none, and the host has none: %w; give one", err)
		}
	}
	o.fleet.namespace = cmp.Or(o.fleet.namespace, os.Getenv("POD_NAMESPACE"), defaultFleetNamespace)
	if slices.Equal(o.metricsByMachine, []string{allMetrics}) {
		o.metricsByMachine = telemetry.SeriesByMachine()
	}
	o.ineffective = set.Ineffective()
	for _, flag := range set.Values() {
		o.values = append(o.values, zpages.Row{Name: flag.Name, Value: flag.Text})
	}
	return o.validate()
}

// validate checks values beyond the types of the flags.
func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(net.ParseIP(o.address) != nil, "--address: expected an IP address, got %q; 0.0.0.0 means all of this host", o.address)
	check(o.port <= 65535, "--port: expected 1 to 65535, got %d; correct it, or leave it out for 10258", o.port)
	check((o.tlsCertFile == "") == (o.tlsKeyFile == ""),
		"--tls-cert-file, --tls-private-key-file: expected both or neither, got %q and %q; add the one that is missing", o.tlsCertFile, o.tlsKeyFile)
	check(o.tlsCertFile == "" || !o.tlsSelfSigned, "--tls-self-signed: expected none with --tls-cert-file, got both; remove one of them")
	for _, name := range o.metricsByMachine {
		check(slices.Contains(telemetry.SeriesByMachine(), name), "--metrics-by-machine: expected %s or names of metrics, which are %s, got %q; correct or remove it",
			allMetrics, strings.Join(telemetry.SeriesByMachine(), ", "), name)
	}
	_, err := o.sockets()
	check(err == nil, "--driver-socket: %w", err)
	check(o.profiling || !o.contentionProfiling, "--contention-profiling: expected --profiling with it, got none; set both or neither")
	check(o.targetKubeconfig != noTarget || o.controlKubeconfig != "",
		"--control-kubeconfig: expected a file or %s with --target-kubeconfig=%s, got none; say where the Machine objects are", inClusterConfig, noTarget)
	return errors.Join(append(errs, o.fleet.validate(), o.machine.validate(), o.health.validate(), o.safety.validate(), o.configs.validate(), o.logs.validate())...)
}

// reportIneffective logs which flags were set without effect.
func (o *options) reportIneffective(log klog.Logger) {
	for _, ineffective := range o.ineffective {
		log.Info("Flag has no effect", "flag", ineffective.Flag, "why", ineffective.Why)
	}
}
