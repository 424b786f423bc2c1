package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

func newTreeCommand(p *program) *cobra.Command {
	var options view.TreeOptions
	grouping := true
	cmd := &cobra.Command{
		Use:   "tree [MACHINEDEPLOYMENT]",
		Short: "Show MachineDeployments with their MachineSets, Machines and Nodes, and what is wrong with them",
		Long: help(`
Show MachineDeployments with their MachineSets, Machines and Nodes. Machines in the same state are one line. What is not as it
should be comes first, with its reason and since when; -o wide shows all reasons and whole messages.`,
			rightToRead,
			"list nodes of the target cluster, for what is wrong with Nodes; without it the rest is shown"),
		Example: "  kubectl mcf tree workers\n  kubectl mcf tree -A --grouping=false",
		Args:    cobra.MaximumNArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			s, err := p.read(cmd, observe.Scope{Machines: true, Nodes: true})
			if err != nil {
				return err
			}
			if len(args) > 0 {
				options.Name = args[0]
			}
			options.Unfolded = !grouping
			t := view.TreeOf(s, options)
			if options.Name != "" && len(t.Roots) == 0 {
				return fmt.Errorf("expected a MachineDeployment, or a MachineSet or Machine without a controller, of the name %s, and found none; "+
					"look in another namespace with -n, or in all with -A", options.Name)
			}
			return p.print(t, objectsIn(t.Roots), func(style text.Style) string { return text.Tree(t, style) })
		}),
	}
	p.outputFlag(cmd)
	p.namespacesFlag(cmd)
	cmd.Flags().BoolVar(&grouping, "grouping", true, "whether machines in the same state are one line")
	cmd.Flags().BoolVar(&options.Empty, "show-empty", false, "show old MachineSets without machines, too")
	return cmd
}

// objectsIn returns all objects of a tree.
func objectsIn(branches []view.Branch) (all []view.Object) {
	for _, b := range branches {
		if len(b.Names) == 0 {
			all = append(all, b.Object)
		}
		for _, name := range b.Names {
			all = append(all, view.Object{Kind: b.Kind, Namespace: b.Namespace, Name: name})
		}
		all = append(all, objectsIn(b.Children)...)
	}
	return all
}

func newStatusCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what does not serve, is stalled, held, frozen or broken, in a namespace or in all",
		Long: help(`
Show all that is not as it should be in a namespace, or with -A in all: MachineDeployments that are stalled, held, frozen or without
machines, circuit breakers that are open, machines that fail, Nodes that are not Ready, holds of deletions, and replicas and slots of the
fleet. The worst comes first.`,
			rightToRead,
			"get or list namespaces; list leases.coordination.k8s.io in the fleet's namespace; list nodes of the target cluster: what cannot be "+
				"read is left out"),
		Example: "  kubectl mcf status -A",
		Args:    cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			s, err := p.read(cmd, observe.Scope{Machines: true, Nodes: true, Namespaces: true, Leases: true})
			if err != nil {
				return err
			}
			v := view.StatusOf(s)
			objects := objectsOf(v.Troubles, func(t view.Trouble) view.Object { return t.Object })
			return p.print(v, objects, func(style text.Style) string { return text.Status(v, style) })
		}),
	}
	p.outputFlag(cmd)
	p.namespacesFlag(cmd)
	return cmd
}
