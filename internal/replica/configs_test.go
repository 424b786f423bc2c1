package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineclass"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/node"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/remediation"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/unmanaged"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/agent"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/secretwatch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/handback"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel"
)

// What is created from a configuration without its required fields is an error that names them, and
// no panic, then or later.
func TestConfigsWithoutValuesNameTheRequiredFields(t *testing.T) {
	for config, c := range map[string]struct {
		err  error
		want string
	}{
		"join.SourceConfig":         {second(join.NewSource(join.SourceConfig{})), "Fleet, Pools, View"},
		"check.Config":              {second(check.New(check.Config{})), "Name, Clock, Read"},
		"configcache.Config":        {second(configcache.New(configcache.Config{})), "Client, Metadata, OwnsPool, Owns"},
		"credentials.SecretsConfig": {second(credentials.NewSecrets(credentials.SecretsConfig{})), "Client, Metadata, Clock"},
		"credentials.TokensConfig":  {second(credentials.NewTokens(credentials.TokensConfig{})), "Machines, Targets, Clock"},
		"drainer.Config":            {second(drainer.New(drainer.Config{})), "Clock, Backoff"},
		"join.Config": {
			second(join.New(join.Config{})), "Machines, Fleet, Pools, View, Cluster, NewSet, Prefix, Events, Clock",
		},
		"kubeletconfig.Config": {second(kubeletconfig.New(kubeletconfig.Config{})), "Client, Cache, Configs, Events, Clock"},
		"machineclass.Config":  {second(machineclass.New(machineclass.Config{})), "Machines, Secrets, Metadata, View, Clock"},
		"namespaceswitch.Config": {
			second(namespaceswitch.New(namespaceswitch.Config{})), "Deployments, Pods, Client, SlotOf, Gate, Holds, Selected, Service, Clock",
		},
		"node.Config": {second(node.New(node.Config{})), "Metadata, View, Targets, Clock"},
		"bynamespace.Config": {
			second(bynamespace.New(bynamespace.Config{})), "Secrets, Select, Connect, Identify, Budgets, BlindAfter, OutageAfter, Clock",
		},
		"orphans.Config": {
			second(orphans.New(orphans.Config{})),
			"Machines, Metadata, Secrets, Leases, Sweeper, Targets, Events, Ledger, ControlCluster, Served, Held, Deletions, Gate, Token, " +
				"Period, Clock",
		},
		"overshoot.Config": {
			second(overshoot.New(overshoot.Config{})), "Machines, Metadata, Events, Namespaces, Serves, Most, Period, Gate, Clock",
		},
		"render.Config": {
			second(render.New(render.Config{})),
			"Client, Target, Machines, Control, Cache, View, Nodes, Written, Prefix, Replaces, Events, Deletions, Clock",
		},
		"runner.Config[string]": {second(runner.New(runner.Config[string]{})), "Name, Reconcile"},
		"agent.Config":          {second(agent.New(agent.Config{}, nil)), "FS, StateDir, Runner, BootID"},
		"secretwatch.Config":    {second(secretwatch.New(secretwatch.Config{})), "Client, Clock, Changed"},
		"template.Config": {
			second(template.New(template.Config{})), "Client, Cache, Configs, Secrets, Templates, Events, Clock",
		},
		"unmanaged.Config": {second(unmanaged.New(unmanaged.Config{})), "Control, Target, Serves, Period, Gate, Clock"},
		"update.Config": {
			second(update.New(update.Config{})),
			"Pools, Owns, Fleet, Written, Cluster, View, Metadata, IsNewSet, Drains, Held, Prefix, Events, Clock",
		},
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
