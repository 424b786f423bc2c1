package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// end prints the result, and cleans up: everything, everything but the logs of a failure, or
// nothing with --keep. It returns the exit code.
func (d *demo) end(ctx context.Context, err error) int {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	switch {
	case interrupted:
		d.screen.print("", "Interrupted. Stopping everything …")
	case err != nil:
		d.reportError(ctx, err)
	case d.keep:
		d.lookAround()
		return 0
	}
	if downErr := harness.Down(ctx, d.dir); downErr != nil {
		d.screen.print("The lab did not stop: "+downErr.Error(), "Its folder is "+d.dir)
		return exitFailed
	}
	if err != nil && !interrupted {
		d.screen.print("Everything is stopped. The logs are in " + filepath.Join(d.dir, "logs"))
		return exitFailed
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.screen.print("Everything is stopped, but the folder stays: " + err.Error())
		return exitFailed
	}
	d.screen.print("Everything is stopped, and " + d.dir + " is removed.")
	if interrupted {
		return exitInterrupted
	}
	return 0
}

// reasonTimeout bounds the search for reasons.
const reasonTimeout = 20 * time.Second

// reportError prints the error, and what the lab reports about its cause.
func (d *demo) reportError(ctx context.Context, err error) {
	d.screen.print("", d.screen.ink.red("Failed: ")+err.Error())
	if d.lab == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reasonTimeout)
	defer cancel()
	for _, line := range reasons(ctx, d.lab) {
		d.screen.note("%s", line)
	}
}

// lookAround prints commands for a lab that stays.
func (d *demo) lookAround() {
	d.screen.print("The lab keeps running. To inspect it, and to continue where the demo has stopped:", "")
	if d.tracing {
		d.screen.note("lab trace MACHINE --dir %s    # the life of a machine", d.dir)
	}
	for _, command := range []string{
		"export KUBECONFIG=" + filepath.Join(d.dir, "admin.kubeconfig") + ` PATH="` + d.tools.bin + `:$PATH"`,
		"kubectl get mcd,mcs,mc,nodes",
		"kubectl get pods -o wide",
		d.page() + "    # the whole fleet, in a browser",
		"curl " + d.lab.Endpoint("cloudsim") + "/v1/instances    # the VMs",
		"kubectl get leases -n " + harness.FleetNamespace + "    # holders of slots",
		"kubectl scale mcd/workers-a --replicas=8",
		"lab scale 5 --dir " + d.dir,
		"kubectl delete -f " + podsManifest + " -f " + deploymentsManifest,
		"",
		"lab status --dir " + d.dir,
		"lab down --dir " + d.dir + " && rm -r " + d.dir,
	} {
		d.screen.note("%s", command)
	}
}
