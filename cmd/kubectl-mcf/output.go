package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

// The values of --output.
const (
	outputWide = "wide"
	outputJSON = "json"
	outputYAML = "yaml"
	outputName = "name"
)

// outputFlag adds the flag --output.
func (p *program) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.output, "output", "o", "", "wide, json, yaml or name")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions( // the flag exists
		[]string{outputWide, outputJSON, outputYAML, outputName}, cobra.ShellCompDirectiveNoFileComp))
}

// namespacesFlag adds the flag --all-namespaces.
func (p *program) namespacesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&p.allNamespaces, "all-namespaces", "A", false, "all namespaces")
}

// print prints a view: as text, or in the form of --output. objects are those that -o name prints.
func (p *program) print(v any, objects []view.Object, render func(text.Style) string) error {
	var out string
	switch p.output {
	case "", outputWide:
		out = render(p.style())
	case outputJSON:
		content, err := json.MarshalIndent(v, "", "    ")
		if err != nil {
			return err
		}
		out = string(content) + "\n"
	case outputYAML:
		content, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		out = string(content)
	case outputName:
		out = names(objects)
	default:
		return usage("--output: expected %s, %s, %s or %s, got %q", outputWide, outputJSON, outputYAML, outputName, p.output)
	}
	_, err := fmt.Fprint(p.streams.Out, out)
	return err
}

// objectsOf returns the objects of the parts of a view.
func objectsOf[T any](parts []T, of func(T) view.Object) (all []view.Object) {
	for _, part := range parts {
		all = append(all, of(part))
	}
	return all
}

// names returns objects as kubectl prints them with -o name, each once.
func names(objects []view.Object) string {
	var all []string
	for _, o := range objects {
		name := strings.ToLower(o.Kind) + "/" + o.Name
		switch o.Kind {
		case view.KindDeployment, view.KindSet, view.KindMachine:
			name = strings.ToLower(o.Kind) + "." + v1alpha1.GroupName + "/" + o.Name
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\n") + "\n"
}

// usageError is an error of usage that is found while a command runs.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// ran returns an error of the work, as main distinguishes it from one of usage.
func ran(err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[usageError](err); is {
		return err
	}
	return &runError{err}
}

// run returns the function of a command whose errors are those of its work.
func run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return ran(f(cmd, args)) }
}
