package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
)

// The exit codes other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

// runError is an error of the work of a command. Every other error is one of its usage.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// failed marks an error of the work of a command; nil stays nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &runError{err}
}

// newCommand returns the command with those below it. Without one of these the binary is a replica,
// which runReplica runs.
func newCommand(runReplica func(context.Context, options) error) *cobra.Command {
	var o options
	build := buildinfo.Read()
	cmd := &cobra.Command{
		Use:   "machine-controller-fleet",
		Short: "Run one replica of the fleet",
		Long: `Run one replica of a fleet that creates machines at a cloud, reconciles them with their Nodes, and
deletes them. All flags can be set in a file, see --config.`,
		Version:       build.String(), // has cobra declare --version
		SilenceErrors: true,           // execute prints them
		SilenceUsage:  true,           // it is longer than a screen, and would hide the error
	}
	set := o.declare(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.complete(set); err != nil {
			return err
		}
		return failed(runReplica(cmd.Context(), o))
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.AddCommand(newCheckCommand(), newLeaveCommand(), newVersionCommand(build))
	return cmd
}

// execute runs the command that the arguments name, reports its error, and returns the exit code. A
// replica logs why it has ended, because its output is a log; other commands print it.
func execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if _, ran := errors.AsType[*runError](err); !ran {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\nSee %s --help.\n", cmd.CommandPath(), err, cmd.CommandPath())
		return exitUsage
	}
	if cmd == root {
		klog.Background().Error(err, "Ended")
	} else {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.CommandPath(), err)
	}
	return exitFailed
}
