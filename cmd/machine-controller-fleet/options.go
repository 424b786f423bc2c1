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

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/serving"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

// options are the flags. Names and defaults are those of Machine Controller Manager where it has
// the flag; where the default is another one, the usage states it.
type options struct {
	kubeconfigs replica.Kubeconfigs
	// target is the value of --target, namespaceSwitch that of --namespace-switch; refusedNetworks are
	// networks as texts.
	target          string
	namespaceSwitch string
	refusedNetworks []string

	driverSockets []string

	replica.Options
	server      serving.Options
	autoscalers serving.MutualOptions
	logs        flags.Logs

	// values are all flags, as /flagz shows them.
	values []zpages.Row
	// ineffective are the flags that were set and have no effect.
	ineffective []flags.Ineffective
}

// allMetrics as a value of --metrics-by-machine means all of these metrics.
const allMetrics = "all"

// declare declares all flags. Nothing here depends on where the process runs: help is the same
// everywhere.
func (o *options) declare(cmd *cobra.Command) *flags.Set {
	o.Options = replica.DefaultOptions()
	set := flags.New(cmd)
	set.Group("Configuration file").Config()
	o.declareClusters(set.Group("Clusters"))
	declareFleet(set.Group("Fleet"), &o.Fleet, &o.Name)
	declareMachine(set.Group("Machines"), &o.Machine)
	declareHealth(set.Group("Health"), &o.Health)
	declareDrain(set.Group("Drain"), &o.Drain)
	declareSafety(set.Group("Safety"), &o.Safety)
	declareConfigs(set.Group("Machine configuration"), &o.Configs)
	o.declareServing(set.Group("Work, metrics and debugging"))
	declareAutoscalers(set.Group("Cluster-autoscalers"), &o.autoscalers)
	o.logs.Declare(set.Group("Logs"))
	declareIgnored(set.Group("Flags of Machine Controller Manager that are accepted and ignored"))
	return set
}

func (o *options) declareClusters(g *flags.Group) {
	g.String(&o.kubeconfigs.Control, "control-kubeconfig", "",
		"kubeconfig of the cluster with the Machine objects; empty means that of the target, inClusterConfig means the one that this runs in")
	g.String(&o.kubeconfigs.Target, "target-kubeconfig", "",
		"kubeconfig of the cluster that the VMs join; empty means the one that this runs in, none means that there is no such cluster")
	declareTargets(g, &o.target, &o.Targets.Select, &o.refusedNetworks)
	g.String(&o.Namespace, "namespace", "", "the only namespace of the control cluster to serve; empty means all (MCM: default)")
	g.String(&o.namespaceSwitch, "namespace-switch", switchNone, "what switches the fleet on and off in each namespace: none, "+
		"or deployment (the Deployment machine-controller-manager there, by its replicas; without it the namespace is off)")
	g.String(&o.NamespaceSelector, "namespace-selector", "",
		"label selector of the namespaces of the control cluster to serve; empty means all; one whose labels change is left, or taken over, "+
			"under the Leases of Machine Controller Manager; needs --shard-by=namespace, which is the default with it")
	g.Float(&o.kubeconfigs.QPS, "kube-api-qps", 0,
		"requests a second to each API server; 0 leaves the pace to the server's priority and fairness (MCM: 20)", flags.OrZero)
	g.Int(&o.kubeconfigs.Burst, "kube-api-burst", 30, "requests that may be sent at once beyond --kube-api-qps", flags.OrZero)
	g.List(&o.driverSockets, "driver-socket", nil, "drivers, separated by commas, each as PROVIDER=PATH: "+
		"the value of MachineClass.provider, and the absolute path of the unix socket on which the driver's process listens")
}

func (o *options) declareServing(g *flags.Group) {
	g.Int(&o.ConcurrentSyncs, "concurrent-syncs", o.ConcurrentSyncs, "how many objects of a kind are worked on at the same time in one "+
		"namespace, four times as many in all, and how many calls of drivers are in flight with one set of credentials; "+
		"no worker waits for a cloud to finish or a Node to drain, and so an idle one costs nothing (MCM: 10 and 50)")
	g.String(&o.server.Address, "address", "0.0.0.0", "IP address to serve metrics and health on")
	g.Int(&o.server.Port, "port", 10258, "port to serve metrics and health on (MCM: 10259 for the machine controller)")
	g.String(&o.server.TLSCertFile, "tls-cert-file", "", "file with a certificate and its chain, PEM, to serve metrics and health over "+
		"HTTPS, TLS 1.3; read again when it changes; empty means HTTP")
	g.String(&o.server.TLSKeyFile, "tls-private-key-file", "", "file with the private key of --tls-cert-file, PEM; empty means none")
	g.Bool(&o.server.TLSSelfSigned, "tls-self-signed", false, "serve metrics and health over HTTPS with a certificate that this process "+
		"creates, which no client can verify: tokens of readers are not sent in clear text; not with --tls-cert-file")
	g.Bool(&o.server.MetricsAuthorization, "metrics-authorization", false,
		"serve metrics and /debug only to those with a bearer token whom the control cluster's RBAC lets read them (nonResourceURLs); "+
			"health is served to all; without it metrics are served to all, and /debug on loopback addresses only")
	g.Bool(&o.ServePage, "page", o.ServePage, "serve a read-only page of the whole fleet at /page/: with --metrics-authorization to those "+
		"who log in with a token of a user whom the control cluster's RBAC lets get /page/, without it on loopback addresses only")
	g.List(&o.MetricsByMachine, "metrics-by-machine", o.MetricsByMachine,
		"names, separated by commas, of the metrics with a series for each machine that are served: "+strings.Join(telemetry.SeriesByMachine(),
			", ")+"; "+allMetrics+" means all of them, empty none; the default are those of machines that have failed")
	g.Bool(&o.MCMWorkqueueMetrics, "mcm-workqueue-metrics", o.MCMWorkqueueMetrics, "serve the metrics of work queues under their names in "+
		"MCM, mcm_workqueue_…, in addition to workqueue_…; they are a quarter of the series of a small fleet")
	g.Bool(&o.server.Profiling, "profiling", false, "serve profiles of the process at /debug/pprof/")
	g.Bool(&o.server.ContentionProfiling, "contention-profiling", false, "profile where goroutines wait for locks, too; needs --profiling")
	g.Bool(&o.Fleet.DebugHooks, "debug-hooks", false,
		"serve /debug/faultpoints, which stops requests on their way, and profiles; for tests of the fleet only")
	g.String(&o.Fleet.DebugFaultPoint, "debug-fault-point", "",
		"with --debug-hooks, stop all work whose name contains this from the start on; empty stops none")
}

// complete reads the file that the command line names, sets the defaults that come from the
// environment, and checks the options.
func (o *options) complete(set *flags.Set) error {
	if err := set.Complete(); err != nil {
		return err
	}
	if o.Name == "" {
		var err error
		if o.Name, err = os.Hostname(); err != nil {
			return fmt.Errorf("--replica-name: expected a name, got none, and the host has none: %w; give one", err)
		}
	}
	o.Fleet.Namespace = cmp.Or(o.Fleet.Namespace, os.Getenv("POD_NAMESPACE"), defaultFleetNamespace)
	if slices.Equal(o.MetricsByMachine, []string{allMetrics}) {
		o.MetricsByMachine = telemetry.SeriesByMachine()
	}
	o.ServeAutoscalers = o.autoscalers.Port != 0
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
	check(net.ParseIP(o.server.Address) != nil, "--address: expected an IP address, got %q; 0.0.0.0 means all of this host", o.server.Address)
	check(o.server.Port <= 65535, "--port: expected 1 to 65535, got %d; correct it, or leave it out for 10258", o.server.Port)
	check((o.server.TLSCertFile == "") == (o.server.TLSKeyFile == ""),
		"--tls-cert-file, --tls-private-key-file: expected both or neither, got %q and %q; add the one that is missing",
		o.server.TLSCertFile, o.server.TLSKeyFile)
	check(o.server.TLSCertFile == "" || !o.server.TLSSelfSigned,
		"--tls-self-signed: expected none with --tls-cert-file, got both; remove one of them")
	for _, name := range o.MetricsByMachine {
		check(slices.Contains(telemetry.SeriesByMachine(), name),
			"--metrics-by-machine: expected %s or names of metrics, which are %s, got %q; correct or remove it",
			allMetrics, strings.Join(telemetry.SeriesByMachine(), ", "), name)
	}
	check(o.resolveTarget(check), "--target: expected kubeconfig, control, none or namespace, got %q; correct it", o.target)
	o.DeploymentSwitch = o.namespaceSwitch == switchDeployment
	check(o.DeploymentSwitch || o.namespaceSwitch == switchNone,
		"--namespace-switch: expected none or deployment, got %q; correct it", o.namespaceSwitch)
	check(!o.DeploymentSwitch || !o.Configs.Enabled || o.Targets.ByNamespace,
		"--machine-configuration: expected none with --namespace-switch=%s: the Nodes of pools are in no namespace, except with --target=%s",
		switchDeployment, targetByNamespace)
	_, err := o.sockets()
	check(err == nil, "--driver-socket: %w", err)
	check(o.server.Profiling || !o.server.ContentionProfiling,
		"--contention-profiling: expected --profiling with it, got none; set both or neither")
	check(o.kubeconfigs.Target != replica.NoTarget || o.kubeconfigs.Control != "",
		"--control-kubeconfig: expected a file or %s where no target cluster is given, by --target=%s or --target-kubeconfig=%s, got none; "+
			"name the cluster that has the Machine objects", replica.InCluster, o.target, replica.NoTarget)
	return errors.Join(append(errs, validateFleet(&o.Fleet), validateMachine(&o.Machine), validateHealth(&o.Health), validateSafety(&o.Safety),
		validateConfigs(&o.Configs), validateAutoscalers(&o.autoscalers, o.server.Port), o.logs.Validate())...)
}

// reportIneffective logs which flags were set without effect.
func (o *options) reportIneffective(log klog.Logger) {
	for _, ineffective := range o.ineffective {
		log.Info("Flag has no effect", "flag", ineffective.Flag, "why", ineffective.Why)
	}
}
