package main

import (
	"errors"
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
)

// defaultFleetNamespace is the default namespace of the Leases.
const defaultFleetNamespace = "machine-controller-fleet"

// declareFleet declares the flags of a replica's part in the fleet.
func declareFleet(g *flags.Group, o *replica.FleetOptions, replica *string) {
	g.String(replica, "replica-name", "",
		"name of this replica, which it keeps when it is restarted; no other of the fleet has it; empty means the name of the host")
	g.String(&o.Name, "fleet-name", o.Name, "name of the fleet, the prefix of its Leases")
	g.String(&o.Namespace, "fleet-namespace", o.Namespace,
		"namespace of the control cluster with the fleet's Leases; empty means $POD_NAMESPACE, and if there is none "+defaultFleetNamespace)
	g.Int(&o.Slots, "slots", o.Slots, "number of slots that the work is divided into; fixed when the fleet is installed")
	g.String(&o.ShardBy, "shard-by", "", "what stays together in one slot: deployment or namespace; empty means deployment, "+
		"and namespace with --target=namespace and with --namespace-selector; fixed when the fleet is installed")
	g.Float(&o.Capacity, "capacity", o.Capacity, "how much this replica should hold, in relation to the others")
	g.String(&o.PodUID, "pod-uid", o.PodUID,
		"UID of the pod that this runs in; with --state-dir it lets a restarted process take its slots back at once")
	g.String(&o.StateDir, "state-dir", o.StateDir,
		"folder in the pod's own volume, for a file lock that proves the end of an earlier process of the pod; empty means none")
	g.Duration(&o.Durations.RenewEvery, "lease-renew-interval", o.Durations.RenewEvery,
		"time between two renewals of the session Lease; the same in the whole fleet, as the next three")
	g.Duration(&o.Durations.Fence, "lease-fence", o.Durations.Fence, "how long after its last renewal a replica may start something")
	g.Duration(&o.Durations.TakeOver, "lease-take-over", o.Durations.TakeOver, "how long after its last renewal a replica is declared dead")
	g.Duration(&o.Durations.HandOverTimeout, "hand-over-timeout", o.Durations.HandOverTimeout,
		"how long a hand-over waits for work in flight before it cancels it")
}

func validateFleet(o *replica.FleetOptions) error {
	errs := []error{}
	if o.Name == "" {
		errs = append(errs, errors.New("--fleet-name: expected a name, got none; give one, or leave it out for fleet"))
	}
	if _, err := o.Spread(); err != nil {
		errs = append(errs, fmt.Errorf("--slots, --shard-by: %w", err))
	}
	if err := o.Durations.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--lease-renew-interval, --lease-fence, --lease-take-over, --hand-over-timeout: %w", err))
	}
	return errors.Join(errs...)
}
