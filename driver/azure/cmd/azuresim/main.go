// Command azuresim serves the small Azure of package azuretest in a lab, whose VMs run at the lab's
// cloudsim: they boot, join and end as cloudsim's own.
//
//	azuresim --listen=127.0.0.1:8443 --certificate=azure.pem --cloudsim=http://127.0.0.1:9797
//
// It listens with TLS, because the SDK sends credentials to nothing else. Nothing is stored: what
// was created ends with the process.
//
// The operator, or a test, reads what there is and what was ever created, and creates VMs that no
// fleet has created:
//
//	curl --cacert azure.pem https://127.0.0.1:8443/admin/v1/resources
//	curl --cacert azure.pem https://127.0.0.1:8443/admin/v1/resources -d '{"id": "/subscriptions/…/virtualMachines/other"}'
//
// It can have the n-th request from now on wait until its client has gone, before or after its
// effect:
//
//	curl --cacert azure.pem https://127.0.0.1:8443/admin/v1/stop -d '{"number": 3, "after": true}'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the first context
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, o, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "azuresim:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	listen, certificate, cloudsim string
	clientID, clientSecret        string
	boot                          cloudapi.BootMode
	createTime, deleteTime        time.Duration
	writesPerHour, burst          int
}

// parse reads the flags. Errors: flag.ErrHelp, and flags that are wrong.
func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("azuresim", flag.ContinueOnError)
	flags.SetOutput(out)
	boot := string(cloudapi.BootSimulated)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&o.certificate, "certificate", "", "`file` to write the server's certificate to, PEM")
	flags.StringVar(&o.cloudsim, "cloudsim", "", "`URL` of the simulated cloud that runs the VMs")
	flags.StringVar(&boot, "boot", boot, "what the VMs become: `simulated` Nodes, or Nodes with a real kubelet")
	flags.StringVar(&o.clientID, "client-id", "lab", "`ID` of the only application")
	flags.StringVar(&o.clientSecret, "client-secret", "secret-of-the-lab", "`secret` of that application")
	flags.DurationVar(&o.createTime, "create-time", time.Second, "how long the cloud creates a VM or a disk after it has accepted the request")
	flags.DurationVar(&o.deleteTime, "delete-time", time.Second, "how long it deletes one")
	flags.IntVar(&o.writesPerHour, "writes-per-hour", 0, "`number` of writes that a subscription has in an hour; 0 means any")
	flags.IntVar(&o.burst, "burst", 200, "with --writes-per-hour, `number` of them at once")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.boot = cloudapi.BootMode(boot)
	switch {
	case o.certificate == "" || o.cloudsim == "" || flags.NArg() > 0:
		return o, errors.New("expected --certificate and --cloudsim, and no other words; see --help")
	case o.boot != cloudapi.BootSimulated && o.boot != cloudapi.BootKubelet:
		return o, fmt.Errorf("--boot: expected %s or %s, got %q", cloudapi.BootSimulated, cloudapi.BootKubelet, boot)
	case o.createTime < 0 || o.deleteTime < 0 || o.writesPerHour < 0 || o.burst < 1:
		return o, errors.New("expected times and numbers of 0 or more, and --burst of 1 or more")
	}
	return o, nil
}
