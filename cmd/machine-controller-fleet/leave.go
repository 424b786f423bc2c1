package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/leave"
)

// leaveCommand is the first argument that has the binary leave instead of run.
const leaveCommand = "leave"

// leaveOptions are the flags of leaving. They mean what they mean for a replica.
type leaveOptions struct {
	controlKubeconfig, targetKubeconfig string
	fleet, fleetNamespace, namespace    string
}

// parseLeave reads the command line after the command. pflag.ErrHelp means that the help was printed.
func parseLeave(args []string) (leaveOptions, error) {
	var o leaveOptions
	fs := pflag.NewFlagSet(leaveCommand, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {
		fmt.Fprintf(os.Stdout, "Gives the machines of a stopped fleet back to Machine Controller Manager.\n\nFlags:\n%s", fs.FlagUsages())
	}
	fs.StringVar(&o.controlKubeconfig, "control-kubeconfig", "", "kubeconfig of the cluster with the Machine objects; empty means that of the target, inClusterConfig means the one that this runs in")
	fs.StringVar(&o.targetKubeconfig, "target-kubeconfig", "", "kubeconfig of the cluster with the Nodes; empty means the one that this runs in")
	fs.StringVar(&o.fleet, "fleet-name", "fleet", "name of the fleet")
	fs.StringVar(&o.fleetNamespace, "fleet-namespace", defaultFleetNamespace, "namespace of the control cluster with the fleet's Leases")
	fs.StringVar(&o.namespace, "namespace", "", "the only namespace to leave, whose Nodes keep their slot labels; empty means all")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if len(fs.Args()) > 0 {
		return o, fmt.Errorf("expected flags only after %s, got %q", leaveCommand, fs.Args())
	}
	return o, nil
}

// runLeave leaves, and tells what it has done.
func runLeave(ctx context.Context, args []string) error {
	o, err := parseLeave(args)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	cfg := leave.Config{
		Fleet: o.fleet, FleetNamespace: o.fleetNamespace, Identity: fleetIdentity(o.fleetNamespace, o.fleet), Namespace: o.namespace,
		Clock: clock.RealClock{},
	}
	controlFile := o.controlKubeconfig
	if controlFile == "" {
		controlFile = o.targetKubeconfig
	}
	control, err1 := unfenced(controlFile)
	target, err2 := unfenced(o.targetKubeconfig)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var errs [3]error
	cfg.Client, errs[0] = kubernetes.NewForConfig(control)
	cfg.Metadata, errs[1] = metadata.NewForConfig(control)
	cfg.Target, errs[2] = metadata.NewForConfig(target)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	fmt.Println("Waiting until nothing of the fleet lives, which may take 15 s.")
	report, err := leave.Leave(ctx, cfg)
	fmt.Printf("Cleaned %d objects, gave up %d Leases.\n", report.Objects, report.Leases)
	return err
}

// unfenced connects without a Fence: there is no session, and no fleet that could be in the way.
func unfenced(file string) (*rest.Config, error) {
	if file == inClusterConfig {
		file = ""
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.UserAgent, config.QPS = "machine-controller-fleet/"+leaveCommand, -1
	return config, nil
}
