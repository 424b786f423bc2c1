package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/agent"
)

// The exit codes other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitReboot means that the machine has to be rebooted, and the daemon started again, to finish a
	// change. With --initial the machine may be rebooting already.
	exitReboot = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := execute(ctx, newCommand(), os.Args[1:])
	stop()
	klog.Flush()
	os.Exit(code)
}

// runError is an error of the work. Every other error is one of usage.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// newCommand returns the command.
func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "machine-config-daemon",
		Short: "Bring this machine to its configuration",
		Long: `Bring this machine to the configuration that is desired for its Node, and report on the Node; or, with
--config, to the one in a file, once; or, with --initial, to the one in a file if the machine has none yet.

Exit codes: 0 it is applied or the daemon was ended, 1 it is not, 2 wrong flags, 3 the machine has to be
rebooted to finish.`,
		Version:       buildinfo.Read().String(),
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true, // it is longer than a screen, and would hide the error
	}
	set := flags.New(cmd)
	o.declare(set)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(set.Complete(), o.check()); err != nil {
			return err
		}
		if err := run(cmd.Context(), o, cmd.OutOrStdout()); err != nil {
			return &runError{err}
		}
		return nil
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	return cmd
}

// execute runs the command, prints its error, and returns the exit code.
func execute(ctx context.Context, cmd *cobra.Command, args []string) int {
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.Name(), err)
	if _, ran := errors.AsType[*runError](err); !ran {
		return exitUsage
	}
	if errors.Is(err, agent.ErrRebootNeeded) || errors.Is(err, agent.ErrRebooting) {
		return exitReboot
	}
	return exitFailed
}
