package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// defaultFleetNamespace is the default namespace of the Leases.
const defaultFleetNamespace = "machine-controller-fleet"

// fleetOptions are the flags of this replica's part in the fleet.
type fleetOptions struct {
	name, namespace string
	podUID          string
	stateDir        string
	debugHooks      bool
	debugFaultPoint string
	capacity        float64
	slots           int
	shardBy         string
	durations       member.Config
}

func (o *fleetOptions) declare(g *flags.Group, replica *string) {
	o.durations = member.DefaultConfig()
	g.String(replica, "replica-name", "", "name of this replica, which it keeps when it is restarted; no other of the fleet has it; empty means the name of the host")
	g.String(&o.name, "fleet-name", "fleet", "name of the fleet, the prefix of its Leases")
	g.String(&o.namespace, "fleet-namespace", "", "namespace of the control cluster with the fleet's Leases; empty means $POD_NAMESPACE, and if there is none "+defaultFleetNamespace)
	g.Int(&o.slots, "slots", 256, "number of slots that the work is divided into; fixed when the fleet is installed")
	g.String(&o.shardBy, "shard-by", string(ring.Deployment), "what stays together in one slot: deployment or namespace; fixed when the fleet is installed")
	g.Float(&o.capacity, "capacity", 1, "how much this replica wants to hold, in relation to the others")
	g.String(&o.podUID, "pod-uid", "", "UID of the pod that this runs in; with --state-dir it lets a restarted process take its slots back at once")
	g.String(&o.stateDir, "state-dir", "", "folder in the pod's own volume, for a file lock that proves the end of an earlier process of the pod; empty means none")
	g.Duration(&o.durations.RenewEvery, "lease-renew-interval", o.durations.RenewEvery, "time between two renewals of the session Lease; the same in the whole fleet, as the next three")
	g.Duration(&o.durations.Fence, "lease-fence", o.durations.Fence, "how long after its last renewal a replica may start something")
	g.Duration(&o.durations.TakeOver, "lease-take-over", o.durations.TakeOver, "how long after its last renewal a replica is declared dead")
	g.Duration(&o.durations.HandOverTimeout, "hand-over-timeout", o.durations.HandOverTimeout, "how long a hand-over waits for work in flight before it cancels it")
}

func (o *fleetOptions) validate() error {
	errs := []error{}
	if o.name == "" {
		errs = append(errs, errors.New("--fleet-name: expected a name, got none; give one, or leave it out for fleet"))
	}
	if _, err := o.spread(); err != nil {
		errs = append(errs, fmt.Errorf("--slots, --shard-by: %w", err))
	}
	if err := o.durations.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--lease-renew-interval, --lease-fence, --lease-take-over, --hand-over-timeout: %w", err))
	}
	return errors.Join(errs...)
}

// spread finds the slot of a key.
func (o *fleetOptions) spread() (ring.Slots, error) {
	by, err := ring.ParseShardBy(o.shardBy)
	if err != nil {
		return ring.Slots{}, err
	}
	return ring.NewSlots(o.slots, by)
}

// settings returns the settings of the protocol for this process.
func (o *fleetOptions) settings(replica, session string, exclusive bool) protocol.Settings {
	return protocol.Settings{
		Config: o.durations, Assignment: assignment.DefaultConfig(), Fleet: o.name, Namespace: o.namespace,
		Replica: replica, Session: session, PodUID: o.podUID, Exclusive: exclusive, Capacity: o.capacity,
		Slots: o.slots, ShardBy: o.shardBy, RingVersion: ring.Version,
	}
}

// restartDelay is how long a process at most waits before it ends because its session has: replicas that lose theirs
// together do not all restart at the same time.
const restartDelay = 2 * time.Second
