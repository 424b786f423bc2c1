// Command simulated-driver serves the driver of the simulated cloud in a process of its own, as a fleet with --driver-socket uses it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated"
)

func main() {
	socket := flag.String("socket", "", "absolute `path` of the unix socket to listen on")
	provider := flag.String("provider", simulated.Provider, "`value` of MachineClass.provider")
	endpoints := flag.String("endpoints", "", "`URLs` of all clouds that requests may go to, split at commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *socket, *provider, strings.Split(*endpoints, ","))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulated-driver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, socket, provider string, endpoints []string) error {
	cloud, err := simulated.New(simulated.Config{Endpoints: endpoints, UserAgent: fmt.Sprintf("simulated-driver/%d", os.Getpid())})
	if err != nil {
		return err
	}
	return plugin.Serve(ctx, socket, plugin.Served{Driver: cloud, Provider: provider})
}
