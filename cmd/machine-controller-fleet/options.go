package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// options are the flags. Names and defaults are those of Machine Controller Manager where it has the flag.
type options struct {
	controlKubeconfig, targetKubeconfig string
	namespace                           string
	address                             string
	port                                int
	replicaName                         string
	concurrentSyncs                     int
	qps                                 float32
	burst                               int
	creationTimeout                     time.Duration
	resourceExhaustedRetry              time.Duration
	nodeConditions                      string
	bootstrapTokenGroups                string
	simulatedCloudEndpoint              string
	fleet                               fleetOptions
}

// parse reads the command line. pflag.ErrHelp means that the help was printed.
func parse(args []string) (options, error) {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "replica"
	}
	o := options{}
	fs := pflag.NewFlagSet("machine-controller-fleet", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {
		fmt.Fprintf(os.Stdout, "Makes machines at a cloud and follows them as Nodes.\n\nFlags:\n%s", fs.FlagUsages())
	}
	fs.StringVar(&o.controlKubeconfig, "control-kubeconfig", "", "kubeconfig of the cluster with the Machine objects; empty means that of the target, inClusterConfig means the one that this runs in")
	fs.StringVar(&o.targetKubeconfig, "target-kubeconfig", "", "kubeconfig of the cluster that the VMs join; empty means the one that this runs in")
	fs.StringVar(&o.namespace, "namespace", "", "the only namespace of the control cluster to serve; empty means all")
	fs.StringVar(&o.address, "address", "0.0.0.0", "IP address to serve metrics and health on")
	fs.IntVar(&o.port, "port", 10258, "port to serve metrics and health on")
	fs.StringVar(&o.replicaName, "replica-name", hostname, "name of this replica, which it keeps when it is restarted; no other of the fleet has it")
	o.fleet.addFlags(fs)
	fs.IntVar(&o.concurrentSyncs, "concurrent-syncs", 200, "how many objects of a kind are worked on at the same time")
	fs.Float32Var(&o.qps, "kube-api-qps", 0, "requests a second to each API server; 0 leaves the pace to the server's priority and fairness")
	fs.IntVar(&o.burst, "kube-api-burst", 30, "requests that may be made at once beyond --kube-api-qps")
	fs.DurationVar(&o.creationTimeout, "machine-creation-timeout", 20*time.Minute, "how long a machine may take to become a healthy Node before it has failed")
	fs.DurationVar(&o.resourceExhaustedRetry, "resource-exhausted-retry", 10*time.Minute, "wait after the cloud had no quota or capacity; 0 means 10m")
	fs.StringVar(&o.nodeConditions, "node-conditions", "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable", "types of Node conditions, separated by commas, that must be False on a healthy Node")
	fs.StringVar(&o.bootstrapTokenGroups, "bootstrap-token-auth-extra-groups", "", "groups, separated by commas, that bootstrap tokens put a joining VM into")
	fs.StringVar(&o.simulatedCloudEndpoint, "simulated-cloud-endpoint", "", "URL of a simulated cloud; empty means that there is no driver for provider simulated")
	logging := flag.NewFlagSet("logging", flag.ContinueOnError)
	klog.InitFlags(logging)
	fs.AddGoFlag(logging.Lookup("v"))
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if len(fs.Args()) > 0 {
		return o, fmt.Errorf("expected flags only, got %q", fs.Args())
	}
	return o, o.validate()
}

func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(net.ParseIP(o.address) != nil, "--address: expected an IP address, got %q", o.address)
	check(o.port >= 1 && o.port <= 65535, "--port: expected 1 to 65535, got %d", o.port)
	check(o.concurrentSyncs > 0, "--concurrent-syncs: expected at least 1, got %d", o.concurrentSyncs)
	check(o.qps >= 0, "--kube-api-qps: must not be negative, got %g", o.qps)
	check(o.burst >= 0, "--kube-api-burst: must not be negative, got %d", o.burst)
	check(o.creationTimeout > 0, "--machine-creation-timeout: expected more than 0, got %s", o.creationTimeout)
	check(o.resourceExhaustedRetry >= 0, "--resource-exhausted-retry: must not be negative, got %s", o.resourceExhaustedRetry)
	return errors.Join(append(errs, o.fleet.validate())...)
}

// limits are the settings that the decisions about machines need.
func (o *options) limits() lifecycle.Limits {
	limits := lifecycle.Limits{CreationTimeout: o.creationTimeout, ResourceExhaustedRetry: o.resourceExhaustedRetry}
	if limits.ResourceExhaustedRetry == 0 {
		limits.ResourceExhaustedRetry = 10 * time.Minute
	}
	for condition := range strings.SplitSeq(o.nodeConditions, ",") {
		if condition = strings.TrimSpace(condition); condition != "" {
			limits.NodeConditions = append(limits.NodeConditions, condition)
		}
	}
	return limits
}
