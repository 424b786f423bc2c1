package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/remediation"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/handback"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel"
)

// What is made of a configuration without its required fields is an error that names them, and no panic, then or later.
func TestConfigs_WithoutValues_NameTheRequiredFields(t *testing.T) {
	for config, c := range map[string]struct {
		err  error
		want string
	}{
		"cloud.Config": {second(cloud.New(cloud.Config{})), "View, Events, Clock, Wake"},
		"handback.Config": {
			second(handback.Leave(t.Context(), handback.Config{})), "Client, Metadata, Fleet, FleetNamespace, Identity, Clock, OnWait",
		},
		"leases.Config": {second(leases.NewStore(leases.Config{})), "Client, Namespace, Fleet, Timeout, Quiet, Clock, Now"},
		"machine.Config": {
			second(machine.New(machine.Config{})), "Machines, Secrets, Metadata, View, Targets, Drivers, Events, Deletions, Clock",
		},
		"machinedeployment.Config": {
			second(machinedeployment.New(machinedeployment.Config{})), "Machines, Metadata, View, Events, Clock",
		},
		"machineset.Config": {
			second(machineset.New(machineset.Config{})), "Machines, Metadata, View, Events, Deletions, Clock, Held",
		},
		"namespacelease.Config": {
			second(namespacelease.New(namespacelease.Config{})), "Client, Metadata, Fleet, SlotOf, Gate, Refused, Clock",
		},
		"remediation.Config": {
			second(remediation.New(remediation.Config{})),
			"Machines, View, Targets, Namespaces, DeploymentEvents, SetEvents, Held, Replica, SlotOf, Holds, Clock",
		},
		"session.Config": {
			second(shardsession.New(shardsession.Config{})),
			"Settings, Leases, Fence, Time, Grants, Metrics, Weigh, Roots, Count, Heard, Accounts, Unowned, Unfit, Unserved, UnservedSlot, " +
				"Led, LeaderLease, Tracer",
		},
		"slotcache.ClassesConfig": {
			second(slotcache.NewClasses(slotcache.ClassesConfig{})), "Machines, Metadata, View, Enqueue, Clock",
		},
		"slotlabel.Config": {
			second(slotlabel.New(slotlabel.Config{})), "Control, Machines, Watch, Slots, Known, Served, Gate, Holds, Events, Clock",
		},
	} {
		want := config + ": expected all required fields, got none for " + c.want
		if first, _, _ := strings.Cut(fmt.Sprint(c.err), "\n"); first != want {
			t.Errorf("got %v\nwant %s", c.err, want)
		}
	}
}

// second returns the error of what a function returns.
func second[T any](_ T, err error) error { return err }
