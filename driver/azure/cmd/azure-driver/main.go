// Command azure-driver serves the driver of Azure in a separate process, as a fleet with
// --driver-socket uses it.
//
//	azure-driver --socket=/run/drivers/azure.sock
//
// Spans of requests are exported as the OTEL_* variables configure, in the traces of the fleet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the first context
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, o)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "azure-driver:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	socket, tokens, metrics, endpoint, certificates string
	replicas                                        int
}

// parse reads the flags. Errors: flag.ErrHelp, and flags that are wrong.
func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("azure-driver", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.socket, "socket", "", "absolute `path` of the unix socket to listen on")
	flags.IntVar(&o.replicas, "replicas", 1,
		"`number` of replicas of the fleet, among which the limits of subscriptions are divided equally where replicas do not send their share")
	flags.StringVar(&o.tokens, "token-directory", "", "`path` of the folder with all tokens of workload identity (default: Gardener's)")
	flags.StringVar(&o.metrics, "metrics-address", "", "`address` on which /metrics is served (default: not served)")
	flags.StringVar(&o.endpoint, "endpoint", "",
		"`URL` of a server in place of AzurePublic, for tests: it answers for Resource Manager and Entra ID")
	flags.StringVar(&o.certificates, "ca-file", "",
		"`file` with the certificates of the authorities that --endpoint has a certificate of, PEM")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.replicas < 1 || flags.NArg() > 0 {
		return o, errors.New("expected --replicas of 1 or more, and no other words; see --help")
	}
	return o, nil
}
