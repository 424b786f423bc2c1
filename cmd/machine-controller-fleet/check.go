package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// checkCommand is the name of the command that checks a fleet.
const checkCommand = "check"

// checkOptions are the flags of the check. They have the same meaning as for a replica.
type checkOptions struct {
	controlKubeconfig    string
	fleet, namespace     string
	slots, leastReplicas int
	timeout              time.Duration
}

// newCheckCommand returns the command that checks a fleet by its Leases. The chart runs it as its
// test.
func newCheckCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   checkCommand,
		Short: "Check that a fleet works",
		Long: `Check by its Leases that a fleet works: enough replicas live and are fit, one leads, and each slot has a
holder that lives. It waits for that, and exits with 1 and what is wrong when the time is over.`,
	}
	set := o.declare(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := set.Complete(); err != nil {
			return err
		}
		return failed(runCheck(cmd.Context(), o, cmd.OutOrStdout()))
	}
	return cmd
}

// declare declares the flags.
func (o *checkOptions) declare(cmd *cobra.Command) *flags.Set {
	set := flags.New(cmd)
	g := set.Group("Flags")
	g.String(&o.controlKubeconfig, "control-kubeconfig", "",
		"kubeconfig of the cluster with the Machine objects; empty means the one that this runs in")
	g.String(&o.fleet, "fleet-name", "fleet", "name of the fleet")
	g.String(&o.namespace, "fleet-namespace", defaultFleetNamespace, "namespace of the control cluster with the fleet's Leases")
	g.Int(&o.slots, "slots", 256, "number of slots of the fleet")
	g.Int(&o.leastReplicas, "replicas", 1, "lowest number of replicas that have to live")
	g.Duration(&o.timeout, "timeout", 2*time.Minute, "how long to wait for the fleet to work")
	return set
}

// runCheck checks the fleet, and prints the result.
func runCheck(ctx context.Context, o checkOptions, out io.Writer) error {
	config, err := unfenced(o.controlKubeconfig, checkCommand)
	if err != nil {
		return err
	}
	client, err := kubeclient.New(config)
	if err != nil {
		return err
	}
	return checkFleet(ctx, o, client, clock.RealClock{}, out)
}

// checkFleet lists the Leases until the fleet works. Errors: what is wrong when the time is over.
func checkFleet(ctx context.Context, o checkOptions, client kubeclient.Interface, c clock.Clock, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	want := membership.Expected{Fleet: o.fleet, Slots: o.slots, Replicas: o.leastReplicas}
	wrong := errors.New("sessions may renew their Leases less often than that; increase --timeout, for example to 30s")
	var before []coordinationv1.Lease // of a list that succeeded: to an empty one every session is new
	for isListed := false; ; {
		now, err := listLeases(ctx, o, client)
		switch {
		case err == nil && isListed:
			problems := membership.Problems(want, before, now)
			if problems == nil {
				fmt.Fprintf(out, "Fleet %s works: %d slots have a holder that lives.\n", o.fleet, o.slots)
				return nil
			}
			wrong = errors.New(strings.Join(problems, "; "))
		case err != nil && ctx.Err() == nil:
			wrong = err
		}
		before, isListed = now, err == nil
		select {
		case <-c.After(membership.CheckAfter(now)):
		case <-ctx.Done():
			return fmt.Errorf("expected the fleet %q to work within %s, got: %w; see docs/operations/fleet.md", o.fleet, o.timeout, wrong)
		}
	}
}

// listLeases lists all Leases of the fleet.
func listLeases(ctx context.Context, o checkOptions, client kubeclient.Interface) ([]coordinationv1.Lease, error) {
	list, err := client.CoordinationV1().Leases(o.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{v1alpha1.LabelFleet: o.fleet}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the Leases of fleet %s in namespace %s: %w", o.fleet, o.namespace, err)
	}
	return list.Items, nil
}
