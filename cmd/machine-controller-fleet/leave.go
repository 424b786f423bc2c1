package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/handback"
)

// leaveCommand is the name of the command that leaves.
const leaveCommand = "leave"

// leaveOptions are the flags of leaving. They have the same meaning as for a replica.
type leaveOptions struct {
	controlKubeconfig, targetKubeconfig string
	fleet, fleetNamespace, namespace    string

	target          string // the value of --target
	selection       bynamespace.Selection
	refusedNetworks []string
	byNamespace     *replica.TargetOptions // nil if all namespaces have one target cluster, or none
}

// newLeaveCommand returns the command that gives the machines of a stopped fleet back to Machine
// Controller Manager.
func newLeaveCommand() *cobra.Command {
	var o leaveOptions
	cmd := &cobra.Command{
		Use:   leaveCommand,
		Short: "Give the machines of a stopped fleet back to Machine Controller Manager",
		Long:  "Give the machines of a stopped fleet back to Machine Controller Manager (MCM).",
	}
	set := o.declare(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := set.Complete(); err != nil {
			return err
		}
		if err := o.complete(); err != nil {
			return err
		}
		return failed(runLeave(cmd.Context(), o, cmd.OutOrStdout()))
	}
	return cmd
}

// declare declares the flags.
func (o *leaveOptions) declare(cmd *cobra.Command) *flags.Set {
	set := flags.New(cmd)
	g := set.Group("Flags")
	g.String(&o.controlKubeconfig, "control-kubeconfig", "",
		"kubeconfig of the cluster with the Machine objects; empty means that of the target, inClusterConfig means the one that this runs in")
	g.String(&o.targetKubeconfig, "target-kubeconfig", "",
		"kubeconfig of the cluster with the Nodes; empty means the one that this runs in, none means that there is no such cluster")
	declareTargets(g, &o.target, &o.selection, &o.refusedNetworks)
	g.String(&o.fleet, "fleet-name", "fleet", "name of the fleet")
	g.String(&o.fleetNamespace, "fleet-namespace", defaultFleetNamespace, "namespace of the control cluster with the fleet's Leases")
	g.String(&o.namespace, "namespace", "",
		"the only namespace to leave; its Nodes keep their slot labels in a cluster of all namespaces; empty means all")
	return set
}

// complete sets what --target stands for. Errors: invalid flags.
func (o *leaveOptions) complete() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.target == targetKubeconfig || o.targetKubeconfig == "" || o.targetKubeconfig == replica.NoTarget,
		"--target-kubeconfig: expected none with --target=%s, got %q; remove one of them", o.target, o.targetKubeconfig)
	of := parseTargets(o.selection, o.refusedNetworks, check)
	switch o.target {
	case targetKubeconfig:
	case targetControl:
		o.targetKubeconfig = o.controlKubeconfig
	case targetNone:
		o.targetKubeconfig = replica.NoTarget
	case targetByNamespace:
		o.targetKubeconfig, o.byNamespace = replica.NoTarget, &of
	default:
		check(false, "--target: expected kubeconfig, control, none or namespace, got %q; correct it", o.target)
	}
	return errors.Join(errs...)
}

// runLeave hands the machines back, and prints the result.
func runLeave(ctx context.Context, o leaveOptions, out io.Writer) error {
	cfg := handback.Config{
		Fleet: o.fleet, FleetNamespace: o.fleetNamespace, Identity: replica.FleetIdentity(o.fleetNamespace, o.fleet), Namespace: o.namespace,
		Clock: clock.RealClock{},
		OnWait: func(d time.Duration) {
			fmt.Fprintf(out, "Waiting %s to see whether a session of the fleet renews its Lease.\n", d)
		},
	}
	controlFile := o.controlKubeconfig
	if controlFile == "" && o.byNamespace == nil {
		controlFile = o.targetKubeconfig
	}
	control, err := unfenced(controlFile, leaveCommand)
	if err != nil {
		return err
	}
	var errs [3]error
	cfg.Client, errs[0] = kubeclient.New(control)
	cfg.Metadata, errs[1] = metadata.NewForConfig(control)
	if o.targetKubeconfig != replica.NoTarget {
		target, err := unfenced(o.targetKubeconfig, leaveCommand)
		if err != nil {
			return err
		}
		cfg.Target, errs[2] = metadata.NewForConfig(target)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if o.byNamespace != nil {
		cfg.OpenTarget = func(ctx context.Context, namespace string) (metadata.Interface, func(), error) {
			return replica.OpenTarget(ctx, cfg.Client, *o.byNamespace, namespace)
		}
	}
	report, err := handback.Leave(ctx, cfg)
	fmt.Fprintf(out, "Cleaned %d objects, released %d Leases.\n", report.Objects, report.Leases)
	return err
}

// unfenced connects a command without a Fence: it has no session.
func unfenced(file, command string) (*rest.Config, error) {
	if file == replica.InCluster {
		file = ""
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.UserAgent, config.QPS = "machine-controller-fleet/"+command, -1
	return apianswers.Check(config), nil
}
