package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/pflag"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// options are the values of the flags.
type options struct {
	listen         string
	stateDir       string
	callLog        string
	kubeconfig     string
	clusters       string
	kubeletCommand string
	daemons        bool
	seed           uint64
	settings       cloudapi.Settings
}

// parse reads the flags. --help is an error, too.
func parse(args []string, out io.Writer) (options, error) {
	opts := options{settings: cloudsim.DefaultSettings()}
	fs := pflag.NewFlagSet("cloudsim", pflag.ContinueOnError)
	fs.SetOutput(out)
	fs.SortFlags = false
	fs.StringVar(&opts.listen, "listen", "127.0.0.1:9797", "address to serve on")
	fs.StringVar(&opts.stateDir, "state-dir", "", "folder of the state (required)")
	fs.StringVar(&opts.callLog, "call-log", "", "file to which each call is appended as a line of JSON (required)")
	fs.StringVar(&opts.kubeconfig, "kubeconfig", "", "cluster that VMs join; without it they boot and join nothing")
	fs.StringVar(&opts.clusters, "clusters", "",
		"folder with kubeconfigs of further clusters: a VM whose user data has a line 'server: URL' joins the one with that server")
	fs.StringVar(&opts.kubeletCommand, "kubelet-command", "",
		"command that is a VM with a real kubelet, split at spaces; without it such VMs are simulated")
	fs.BoolVar(&opts.daemons, "daemons", false, "simulated Nodes play machine-config-daemon")
	fs.Uint64Var(&opts.seed, "seed", 0, "seed of all random decisions; 0 draws one")

	latencies := addLatencies(fs, &opts.settings)
	podTermination := fs.Duration("pod-termination-time", time.Duration(opts.settings.PodTerminationTime),
		"how long a pod of a simulated Node takes to end; negative means that it never ends")
	updates := addUpdates(fs, opts.settings.InPlaceUpdates)
	rebootTime := fs.Duration("reboot-time", time.Duration(opts.settings.RebootTime),
		"how long a simulated Node is not Ready when it reboots for its machine configuration")
	forgetAfter := fs.Duration("forget-after", time.Hour, "how long an ended VM is remembered, and its client token")
	fs.StringVar(&opts.settings.Credentials, "credentials", "", "bearer token that every call has to send; empty means none")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected arguments %q", fs.Args())
	}
	if opts.stateDir == "" || opts.callLog == "" {
		return options{}, errors.New("--state-dir and --call-log are required")
	}
	latencies()
	opts.settings.PodTerminationTime = cloudapi.Duration(*podTermination)
	opts.settings.InPlaceUpdates = updates()
	opts.settings.RebootTime = cloudapi.Duration(*rebootTime)
	opts.settings.ForgetAfter = cloudapi.Duration(*forgetAfter)
	if opts.seed == 0 {
		opts.seed = rand.Uint64() //nolint:gosec // it decides faults, and protects nothing
	}
	return opts, nil
}

// addUpdates adds the flags of updates in place. The returned function reads them.
func addUpdates(fs *pflag.FlagSet, settings cloudapi.InPlaceUpdates) (read func() cloudapi.InPlaceUpdates) {
	result := fs.String("update-result", string(settings.Result),
		"result of updates in place of simulated Nodes: successful, failed, or never")
	takes := fs.Duration("update-time", time.Duration(settings.Time), "how long they take, and the Node is not Ready")
	components := fs.Duration("components-time", time.Duration(settings.ComponentsTime),
		"how long critical components of an updated Node take to start; negative means that they never start")
	return func() cloudapi.InPlaceUpdates {
		return cloudapi.InPlaceUpdates{
			Result: cloudapi.UpdateResult(*result), Time: cloudapi.Duration(*takes), ComponentsTime: cloudapi.Duration(*components),
		}
	}
}

// addLatencies adds a pair of flags for each time with a distribution. The returned function writes
// the values to the settings.
func addLatencies(fs *pflag.FlagSet, settings *cloudapi.Settings) (apply func()) {
	type latencyFlag struct {
		mean, spread *time.Duration
		set          func(cloudapi.Latency)
	}
	var all []latencyFlag
	add := func(name, what string, value cloudapi.Latency, set func(cloudapi.Latency)) {
		all = append(all, latencyFlag{
			mean:   fs.Duration(name, time.Duration(value.Mean), what),
			spread: fs.Duration(name+"-spread", time.Duration(value.Spread), "standard deviation of --"+name),
			set:    set,
		})
	}
	operation := func(name string, op cloudapi.Operation) {
		add(name+"-latency", "time until "+string(op)+" is answered", settings.Latency[op], func(l cloudapi.Latency) { settings.Latency[op] = l })
	}
	operation("create", cloudapi.OpCreateInstance)
	operation("delete", cloudapi.OpDeleteInstance)
	operation("modify", cloudapi.OpModifyInstance)
	operation("get", cloudapi.OpGetInstance)
	operation("list", cloudapi.OpListInstances)
	operation("attach", cloudapi.OpAttachVolume)
	operation("detach", cloudapi.OpDetachVolume)
	add("boot-time", "time from the answer to a create until the VM runs", settings.BootTime, func(l cloudapi.Latency) {
		settings.BootTime = l
	})
	add("stop-time", "time that a VM takes to stop", settings.StopTime, func(l cloudapi.Latency) { settings.StopTime = l })
	return func() {
		for _, f := range all {
			f.set(cloudapi.Latency{Mean: cloudapi.Duration(*f.mean), Spread: cloudapi.Duration(*f.spread)})
		}
	}
}
