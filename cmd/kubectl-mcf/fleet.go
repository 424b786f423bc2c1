package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// needLeases returns the error of a view that is computed from Leases, where there are none.
func needLeases(s view.Snapshot) error {
	for _, m := range s.Missing {
		if m.What != view.MissingLeases {
			continue
		}
		if m.Right != "" {
			return fmt.Errorf("the Leases of the fleet cannot be read: %s; it needs the right to %s", m.Why, m.Right)
		}
		return fmt.Errorf("the Leases of the fleet cannot be read: %s", m.Why)
	}
	return nil
}

func newOwnersCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "owners [NAME ...]",
		Short: "Show which replica reconciles which MachineDeployments, or the objects of these names",
		Long: help("Show which replica reconciles which MachineDeployments, and MachineSets and Machines without a controller.",
			rightToRead, rightToReadLeases),
		Example: "  kubectl mcf owners -A\n  kubectl mcf owners workers",
		RunE: run(func(cmd *cobra.Command, args []string) error {
			s, err := p.readFleet(cmd, observe.Scope{Machines: true})
			if err != nil {
				return err
			}
			v := view.OwnersOf(s, args)
			if len(args) > 0 && len(v.Owners) == 0 {
				return fmt.Errorf("expected objects of the names %v, and found none; look in another namespace with -n, or in all with -A", args)
			}
			objects := objectsOf(v.Owners, func(o view.Owner) view.Object { return o.Root })
			return p.print(v, objects, func(style text.Style) string { return text.Owners(v, style) })
		}),
	}
	p.outputFlag(cmd)
	p.namespacesFlag(cmd)
	return cmd
}

func newSlotsCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slots [NUMBER ...]",
		Short: "Show the replicas of the fleet with their slots, and slots that are not held",
		Long: help(`
Show the replicas of the fleet, how many slots each holds, and slots without a holder that lives or that move; -o wide shows all slots,
numbers show these.`, rightToReadLeases),
		Example: "  kubectl mcf slots\n  kubectl mcf slots 7 --fleet-namespace fleets",
		RunE: run(func(cmd *cobra.Command, args []string) error {
			s, err := p.readFleet(cmd, observe.Scope{})
			if err != nil {
				return err
			}
			f := view.FleetOf(s)
			if len(args) == 0 {
				objects := objectsOf(f.Replicas, func(r view.Replica) view.Object { return view.Object{Kind: view.KindReplica, Name: r.Name} })
				return p.print(f, objects, func(style text.Style) string { return text.Slots(f, style) })
			}
			slots, err := slotsOf(f, args)
			if err != nil {
				return err
			}
			objects := objectsOf(slots, func(s view.Slot) view.Object { return view.Object{Kind: view.KindSlot, Name: strconv.Itoa(s.Number)} })
			return p.print(slots, objects, func(style text.Style) string { return text.Slot(slots, style) })
		}),
	}
	p.outputFlag(cmd)
	return cmd
}

// slotsOf returns the slots of a fleet by their numbers.
func slotsOf(f view.Fleet, numbers []string) (slots []view.Slot, err error) {
	for _, text := range numbers {
		number, err := strconv.Atoi(text)
		i := slices.IndexFunc(f.Slots, func(s view.Slot) bool { return s.Number == number })
		if err != nil || i < 0 {
			return nil, fmt.Errorf("expected the number of a slot from 0 to %d, got %q", len(f.Slots)-1, text)
		}
		slots = append(slots, f.Slots[i])
	}
	return slots, nil
}

func newMoveCommand(p *program) *cobra.Command {
	timeout := time.Minute
	wait := true
	cmd := &cobra.Command{
		Use:   "move SLOT REPLICA",
		Short: "Move a slot to another replica",
		Long: help(`
Move a slot to another replica, as to find out whether a replica causes a problem: the slot's Lease is annotated with it, its holder hands
the slot over when nothing of it is in flight, and that replica acquires it. The leader may assign it to another replica later.`,
			rightToReadLeases, "patch leases of coordination.k8s.io in the fleet's namespace (role …:operator of the chart)"),
		Example: "  kubectl mcf move 7 fleet-1",
		Args:    cobra.ExactArgs(2),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			r, err := p.reader()
			if err != nil {
				return err
			}
			read := func() (view.Fleet, view.Slot, error) {
				s, err := r.Read(cmd.Context(), p.now(), observe.Scope{Leases: true})
				if err := errors.Join(err, needLeases(s)); err != nil {
					return view.Fleet{}, view.Slot{}, err
				}
				f := view.FleetOf(s)
				slots, err := slotsOf(f, args[:1])
				if err != nil {
					return f, view.Slot{}, err
				}
				return f, slots[0], nil
			}
			f, slot, err := read()
			if err != nil {
				return err
			}
			if err := mayReceive(f, args[1]); err != nil {
				return err
			}
			name := membership.SlotLeaseName(p.fleetName, slot.Number, len(f.Slots))
			patch := annotation(v1alpha1.AnnotationAssignedReplica, args[1])
			leases := r.Control.CoordinationV1().Leases(p.fleetNamespace)
			_, err = leases.Patch(cmd.Context(), name, types.MergePatchType, patch, patchDefaults())
			right := observe.Right{Verb: "patch", Resource: "leases.coordination.k8s.io", Namespace: p.fleetNamespace}
			if err := observe.Explain(err, right); err != nil {
				return err
			}
			if !wait {
				fmt.Fprintf(p.streams.Out, "slot %d is assigned to %s\n", slot.Number, args[1])
				return nil
			}
			err = p.await(cmd.Context(), timeout, func() (bool, error) {
				_, slot, err = read()
				return slot.Replica == args[1], err
			})
			if errors.Is(err, errTimeout) {
				return fmt.Errorf("slot %d was not acquired by %s within %s: it is held by %q and assigned to %q; the log of %s has the reason",
					slot.Number, args[1], timeout, slot.Replica, slot.Assigned, args[1])
			}
			if err == nil {
				fmt.Fprintf(p.streams.Out, "slot %d is held by %s, under epoch %d\n", slot.Number, args[1], slot.Epoch)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the replica holds the slot")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait")
	return cmd
}

// mayReceive returns an error if a replica cannot acquire slots.
func mayReceive(f view.Fleet, name string) error {
	var names []string
	for _, r := range f.Replicas {
		if r.Lives && !r.Leaving && r.Unfit == "" {
			names = append(names, r.Name)
		}
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("expected a replica that lives and is fit, got %q; there are %v", name, names)
	}
	return nil
}

func newTopCommand(p *program) *cobra.Command {
	var from replicaSource
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the load of replicas: slots, machines, queues, CPU and memory",
		Long: help(`
Show the load of replicas. Slots and machines are those of Leases and labels; CPU, memory and queues are metrics of each replica, which are
read through a forwarded port of its pod, or at the addresses of --endpoints.`,
			rightToRead, rightToReadLeases, rightsForReplicas),
		Example: "  kubectl mcf top --token \"$(kubectl create token reader)\"",
		Args:    cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			p.allNamespaces = true
			s, err := p.readFleet(cmd, observe.Scope{Machines: true})
			if err != nil {
				return err
			}
			metrics := p.metrics(cmd.Context(), &s, from, interval)
			v := view.TopOf(s, metrics)
			objects := objectsOf(v.Replicas, func(r view.Load) view.Object { return view.Object{Kind: view.KindReplica, Name: r.Name} })
			return p.print(v, objects, func(style text.Style) string { return text.Top(v, style) })
		}),
	}
	p.outputFlag(cmd)
	from.declare(cmd)
	cmd.Flags().DurationVar(&interval, "interval", interval, "the time in which CPU is measured")
	return cmd
}

func newVersionCommand(p *program) *cobra.Command {
	var from replicaSource
	clientOnly := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this client, and those of the replicas of the fleet",
		Long: help("Show the version of this client, and those of the replicas of the fleet, by their metrics.",
			rightToReadLeases, rightsForReplicas, "none with --client"),
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			build := buildinfo.Read()
			client := view.Build{Name: "kubectl-mcf", Version: build.Version, Commit: build.Commit}
			v := view.Versions{Client: client}
			if !clientOnly {
				s, err := p.read(cmd, observe.Scope{Leases: true})
				if err != nil {
					s.Missing = append(s.Missing, view.Missing{What: "Replicas", Why: err.Error()})
				}
				v = view.VersionsOf(client, s, p.metrics(cmd.Context(), &s, from, 0))
				v.Missing = s.Missing
			}
			return p.print(v, nil, func(style text.Style) string { return text.Versions(v, style) })
		}),
	}
	p.outputFlag(cmd)
	from.declare(cmd)
	cmd.Flags().BoolVar(&clientOnly, "client", false, "the version of this client only")
	return cmd
}
