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
	cmd.SetUsageFunc(showUsage)
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

// showUsage writes how a command is used, without the flags of all commands: they are longer than a
// screen. It is no template, as cobra has it: the linker keeps all methods of all types in a
// program that has templates.
func showUsage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if cmd.Runnable() {
		b.WriteString("\n  " + cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n  " + cmd.CommandPath() + " [command]")
	}
	if cmd.HasExample() {
		b.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n\nAvailable Commands:")
		for _, verb := range cmd.Commands() {
			if verb.IsAvailableCommand() || verb.Name() == "help" {
				fmt.Fprintf(&b, "\n  %-*s %s", verb.NamePadding(), verb.Name(), verb.Short)
			}
		}
	}
	if cmd.HasParent() && cmd.HasAvailableLocalFlags() {
		b.WriteString("\n\nFlags:\n" + strings.TrimRight(cmd.LocalFlags().FlagUsages(), "\n"))
	}
	b.WriteString("\n\n" + globalFlags)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nUse %q for more information about a command.\n", cmd.CommandPath()+" [command] --help")
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// Rights that several verbs need, with the roles of the Helm chart that have them.
const (
	rightToRead = "get and list machinedeployments, machinesets and machines of " + v1alpha1.GroupName + " (role view)"
)

// help returns the long help of a verb, with the rights that it needs.
func help(about string, rights ...string) string {
	return fmt.Sprintf("%s\n\nRights:\n  %s", strings.TrimSpace(about), strings.Join(rights, "\n  "))
}
