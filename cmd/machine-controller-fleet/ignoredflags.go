package main

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
)

// declareIgnored declares the flags of MCM that have no meaning here, so that its command line
// works. Their values must be of the right type, and go nowhere.
func declareIgnored(g *flags.Group) {
	text := func(name, value, usage string) { g.String(new(string), name, value, usage, flags.Ignored) }
	duration := func(name string, value time.Duration, usage string) {
		g.Duration(new(time.Duration), name, value, usage, flags.Ignored)
	}
	g.Bool(new(bool), "leader-elect", true,
		"not needed: replicas share the work under Leases, one alone too; how many there are is the number of pods", flags.Ignored)
	duration("leader-elect-lease-duration", 15*time.Second, "replaced by --lease-take-over")
	duration("leader-elect-renew-deadline", 10*time.Second, "replaced by --lease-fence")
	duration("leader-elect-retry-period", 2*time.Second, "replaced by --lease-renew-interval")
	text("leader-elect-resource-lock", "leases", "not needed: it is always Leases, named after --fleet-name in --fleet-namespace")
	text("cloud-provider", "", "replaced by the field provider of a MachineClass, which names the driver")
	duration("min-resync-period", 12*time.Hour, "not needed: changes are delivered as events, and deadlines have their own timers")
	duration("controller-start-interval", 0, "not needed: controllers start together, and wait for what they own")
	text("kube-api-content-type", "application/vnd.kubernetes.protobuf",
		"not needed: protobuf for the kinds of Kubernetes, JSON for the others")
	duration("log-flush-frequency", 5*time.Second, "not needed: logs go to standard error at once")
}
