package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
)

// newCommand returns the command with all verbs.
func newCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-mcf",
		Short: "See and steer a fleet of machines",
		Long: `See what a fleet of machines does and what it waits for, and steer it.

It reads the API server of the kubeconfig, which is that of the control cluster, with your rights. Where the Nodes are in another
cluster, name it with --target-kubeconfig or --target-context. What it may not read it leaves out, and says which right is missing.

Exit codes: 0 done, 1 failed or not done, 2 wrong usage.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl mcf"},
		Version:       buildinfo.Read().Version,
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true, // it is longer than a screen, and would hide the error
	}
	cmd.SetOut(p.streams.Out)
	cmd.SetErr(p.streams.ErrOut)
	p.declare(cmd)
	cmd.AddCommand(newTreeCommand(p), newStatusCommand(p), newRolloutCommand(p), newWhyCommand(p), newOwnersCommand(p), newSlotsCommand(p),
		newMoveCommand(p), newDrainCommand(p), newPreserveCommand(p), newUnpreserveCommand(p), newHoldCommand(p), newReleaseCommand(p),
		newTargetsCommand(p), newTopCommand(p), newPlanCommand(p), newDashboardCommand(p), newVersionCommand(p), newOptionsCommand())
	p.addCompletions(cmd)
	hideGlobalFlags(cmd)
	return cmd
}

// newOptionsCommand returns the command that lists the flags of all commands, as kubectl has it.
func newOptionsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "options", Short: "List the flags that all commands have", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "All commands have these flags:\n\n%s", cmd.InheritedFlags().FlagUsages())
		},
	}
}

const globalFlags = `"kubectl mcf options" lists the flags of all commands.` + "\n"

// hideGlobalFlags leaves the flags of all commands out of each help: they are longer than a screen.
func hideGlobalFlags(cmd *cobra.Command) {
	template := cmd.UsageTemplate()
	from, to := strings.Index(template, "{{if .HasAvailableLocalFlags}}"), strings.Index(template, "{{if .HasHelpSubCommands}}")
	if from < 0 || to < from {
		return // another version of cobra
	}
	for _, verb := range cmd.Commands() {
		verb.SetUsageTemplate(template[:from] + "{{if .HasAvailableLocalFlags}}\n\nFlags:\n" +
			"{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}\n\n" + globalFlags + template[to:])
	}
	cmd.SetUsageTemplate(template[:from] + "\n\n" + globalFlags + template[to:])
}

// Rights that several verbs need, with the roles of the Helm chart that have them.
const (
	rightToRead = "get and list machinedeployments, machinesets and machines of " + v1alpha1.GroupName + " (role view)"
)

// help returns the long help of a verb, with the rights that it needs.
func help(about string, rights ...string) string {
	return fmt.Sprintf("%s\n\nRights:\n  %s", strings.TrimSpace(about), strings.Join(rights, "\n  "))
}
