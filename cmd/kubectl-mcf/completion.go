package main

import (
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
)

// mostCompletions is how many objects are read for the names that a shell offers.
const mostCompletions = 500

// lister lists the names of objects; none on an error.
type lister = func(cmd *cobra.Command, r observe.Reader, namespace string, o metav1.ListOptions) []string

// completes returns the function that completes the first argument of a command by names of
// objects. Without the right to list them it offers none.
func (p *program) completes(names lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		r, namespace, err := p.readerIn()
		if len(args) > 0 || err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offered []cobra.Completion
		for _, name := range names(cmd, r, namespace, metav1.ListOptions{Limit: mostCompletions}) {
			if strings.HasPrefix(name, prefix) {
				offered = append(offered, name)
			}
		}
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
}

func deploymentNames(cmd *cobra.Command, r observe.Reader, namespace string, o metav1.ListOptions) (names []string) {
	list, err := r.Machines.MachineDeployments(namespace).List(cmd.Context(), o)
	if err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func machineNames(cmd *cobra.Command, r observe.Reader, namespace string, o metav1.ListOptions) (names []string) {
	list, err := r.Machines.Machines(namespace).List(cmd.Context(), o)
	if err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func nodeNames(cmd *cobra.Command, r observe.Reader, _ string, o metav1.ListOptions) (names []string) {
	if r.Target == nil {
		return nil
	}
	list, err := r.Target.CoreV1().Nodes().List(cmd.Context(), o)
	if err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// addCompletions has the arguments of verbs completed, by the word that their usage names.
func (p *program) addCompletions(cmd *cobra.Command) {
	for _, verb := range cmd.Commands() {
		p.addCompletions(verb)
		_, argument, _ := strings.Cut(verb.Use, " ")
		switch strings.Trim(argument, "[]") {
		case "MACHINEDEPLOYMENT", "NAME ...":
			verb.ValidArgsFunction = p.completes(deploymentNames)
		case "MACHINE":
			verb.ValidArgsFunction = p.completes(machineNames)
		case "NODE":
			verb.ValidArgsFunction = p.completes(nodeNames)
		}
	}
}
