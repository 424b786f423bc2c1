package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The exit codes other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitChange and exitNoEnd are results of plan --exit-code. They are no codes of errors, so
	// that an error is never taken for a change.
	exitChange = 3
	exitNoEnd  = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	klog.SetOutput(io.Discard) // of client-go; errors are returned
	klog.LogToStderr(false)
	p := &program{
		streams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		clock:   clock.RealClock{}, env: os.Getenv, connect: kubeconfigs,
	}
	code := execute(ctx, newCommand(p), os.Args[1:])
	stop()
	os.Exit(code)
}

// runError is an error of the work, or the report that its subject is not done. Every other error
// is one of usage.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// resultError is the exit code of a result that was printed already, and no failure.
type resultError struct{ code int }

func (e *resultError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// execute runs the command, prints its error, and returns the exit code.
func execute(ctx context.Context, cmd *cobra.Command, args []string) int {
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if result, is := errors.AsType[*resultError](err); is {
		return result.code
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "error: %v\n", err)
	if _, ran := errors.AsType[*runError](err); !ran {
		return exitUsage
	}
	return exitFailed
}
