// Command example is a driver in a separate process, for a cloud that is a folder: each VM is a
// file there, with the UID of its Machine as its name. It has all that a driver needs, and
// docs/drivers/write-a-driver.md explains it step by step.
//
//	example --socket=/run/drivers/folder.sock --folder=/var/lib/vms
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

func main() {
	socket := flag.String("socket", "", "absolute `path` of the unix socket to listen on")
	folder := flag.String("folder", "", "`path` of the folder that is the cloud")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // of a process
	err := plugin.Serve(ctx, *socket, plugin.Served{Driver: &cloud{folder: *folder}, Provider: "folder", NeverInitializes: true})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}
