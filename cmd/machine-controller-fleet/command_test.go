package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// parse returns the options of a replica with these arguments, as the command gives them to it.
func parse(args []string) (o options, err error) {
	cmd := newCommand(func(_ context.Context, parsed options) error {
		o = parsed
		return nil
	})
	cmd.SetArgs(append([]string{}, args...))
	err = cmd.Execute()
	return o, err
}

// flagsOfReplica returns the flags of the command that runs a replica.
func flagsOfReplica() *pflag.FlagSet { return newCommand(nil).Flags() }

// executed runs the command, with a replica that ends with an error, and returns what it prints and
// its exit code.
func executed(t *testing.T, ended error, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := newCommand(func(context.Context, options) error { return ended })
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	code = execute(t.Context(), cmd, append([]string{}, args...))
	return o.String(), e.String(), code
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		args  string
		ended error
		code  int
		errs  string // the beginning of what is printed to the standard error
	}{
		{args: "--slots=16"},
		{args: "--help"},
		{args: "help leave"},
		{args: "leave --help"},
		{args: "completion bash"},
		{args: "", ended: errors.New("the API server is unreachable"), code: exitFailed}, // it is logged
		{args: "--slots=0", ended: errors.New("not reached"), code: exitUsage, errs: "machine-controller-fleet: --slots: expected more than 0"},
		{
			args: "--slotz=1", code: exitUsage,
			errs: "machine-controller-fleet: there is no flag --slotz; the nearest is --slots\nSee machine-controller-fleet --help.\n",
		},
		{args: "word", code: exitUsage, errs: `machine-controller-fleet: expected flags only, got ["word"]; a value belongs`},
		{args: "leaves", code: exitUsage, errs: `machine-controller-fleet: expected flags only, got ["leaves"]; the nearest command is leave`},
		{args: "leave word", code: exitUsage, errs: `machine-controller-fleet leave: expected flags only, got ["word"]`},
		{args: "leave --slots=1", code: exitUsage, errs: "machine-controller-fleet leave: there is no flag --slots; the nearest is --"},
		{args: "check --help"},
		{args: "check --replicas=0", code: exitUsage, errs: "machine-controller-fleet check: --replicas: expected more than 0"},
		{args: "check --control-kubeconfig=/does/not/exist", code: exitFailed, errs: "machine-controller-fleet check: read the kubeconfig: "},
		{args: "leave --control-kubeconfig=/does/not/exist", code: exitFailed, errs: "machine-controller-fleet leave: read the kubeconfig: "},
		{
			args: "leave --target=here", code: exitUsage,
			errs: `machine-controller-fleet leave: --target: expected kubeconfig, control, none or namespace, got "here"`,
		},
		{
			args: "leave --target=namespace --target-kubeconfig=a", code: exitUsage,
			errs: "machine-controller-fleet leave: --target-kubeconfig: expected none with --target=namespace",
		},
		{
			args: "leave --target=namespace --control-kubeconfig=/does/not/exist", code: exitFailed,
			errs: "machine-controller-fleet leave: read the kubeconfig: ",
		},
		{args: "completion bash --slots=1", code: exitUsage, errs: "machine-controller-fleet completion bash: unknown flag: --slots\n"},
	} {
		_, errs, code := executed(t, tc.ended, strings.Fields(tc.args)...)
		if code != tc.code || !strings.HasPrefix(errs, tc.errs) || tc.errs == "" && errs != "" {
			t.Errorf("%q: want exit code %d and %q, got %d and %q", tc.args, tc.code, tc.errs, code, errs)
		}
	}
}

func TestCommands(t *testing.T) {
	cmd := newCommand(nil)
	cmd.InitDefaultCompletionCmd()
	cmd.InitDefaultHelpCmd()
	var names []string
	for _, below := range cmd.Commands() {
		names = append(names, below.Name())
	}
	if want := []string{"check", "completion", "help", "leave", "version"}; !slices.Equal(names, want) {
		t.Errorf("want the commands %q, got %q", want, names)
	}
}

// A shell completes the flags of the typed command, and no files where none are expected.
func TestCompletion(t *testing.T) {
	for _, tc := range []struct{ args, want, not string }{
		{cobra.ShellCompNoDescRequestCmd + " --machine-drain", "--machine-drain-timeout\n", "--fleet-name"},
		{cobra.ShellCompNoDescRequestCmd + " leave --", "--fleet-name\n", "--slots"},
		{cobra.ShellCompNoDescRequestCmd + " leave file", ":4\n", "file"}, // 4 is cobra.ShellCompDirectiveNoFileComp
	} {
		if out, _, code := executed(t, nil, strings.Fields(tc.args)...); code != 0 || !strings.Contains(out, tc.want) ||
			strings.Contains(out, tc.not) {
			t.Errorf("%s: want %q and not %q, got %d and:\n%s", tc.args, tc.want, tc.not, code, out)
		}
	}
}
