package bridge

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
)

// Main is the main function of a program that serves a driver of Machine Controller Manager: it
// reads the flags --socket and --provider, whose default is given, and ends the process with the
// code 1 when it cannot serve.
func Main(provider string, d mcm.Driver, o Options) {
	socket := flag.String("socket", "", "absolute `path` of the unix socket to listen on")
	flag.StringVar(&provider, "provider", provider, "`value` of MachineClass.provider")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // of a process
	err := Serve(ctx, *socket, provider, d, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
}
