package main

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// The values of --target.
const (
	targetKubeconfig  = "kubeconfig"
	targetControl     = "control"
	targetNone        = "none"
	targetByNamespace = "namespace"
)

// The values of --namespace-switch.
const (
	switchNone       = "none"
	switchDeployment = "deployment"
)

// resolveTarget sets the options that --target stands for, and reports whether its value is one of
// those that exist. check records what other flags have to be.
func (o *options) resolveTarget(check func(ok bool, format string, args ...any)) (isKnown bool) {
	check(o.target == targetKubeconfig || o.kubeconfigs.Target == "" || o.kubeconfigs.Target == replica.NoTarget,
		"--target-kubeconfig: expected none with --target=%s, got %q; remove one of them", o.target, o.kubeconfigs.Target)
	shardBy, isKnown := assignment.ByDeployment, true
	switch o.target {
	case targetKubeconfig:
	case targetControl:
		o.kubeconfigs.Target = o.kubeconfigs.Control
	case targetNone:
		o.kubeconfigs.Target = replica.NoTarget
	case targetByNamespace:
		o.kubeconfigs.Target, o.Targets.ByNamespace, shardBy = replica.NoTarget, true, assignment.ByNamespace
		if o.Targets.Select.Labels != "" {
			o.Targets.Select.Secret = ""
		}
		check(o.Fleet.ShardBy == "" || o.Fleet.ShardBy == string(assignment.ByNamespace),
			"--shard-by: expected %s with --target=%s, got %q; a target cluster has one owner",
			assignment.ByNamespace, targetByNamespace, o.Fleet.ShardBy)
	default:
		isKnown = false
	}
	if o.NamespaceSelector != "" {
		shardBy = assignment.ByNamespace
		o.checkNamespaceSelector(check)
	}
	if o.Fleet.ShardBy == "" {
		o.Fleet.ShardBy = string(shardBy)
	}
	o.Targets.Refused = nil
	for _, text := range o.refusedNetworks {
		network, err := netip.ParsePrefix(text)
		check(err == nil, "--target-refused-networks: expected networks such as 169.254.0.0/16, got %q", text)
		o.Targets.Refused = append(o.Targets.Refused, network)
	}
	return isKnown
}

// checkNamespaceSelector records what is wrong with --namespace-selector, or with other flags next
// to it.
func (o *options) checkNamespaceSelector(check func(ok bool, format string, args ...any)) {
	_, err := labels.Parse(o.NamespaceSelector)
	check(err == nil, "--namespace-selector: expected a label selector such as fleet=canary, got %q; correct it", o.NamespaceSelector)
	check(o.Namespace == "", "--namespace-selector: expected none with --namespace, got both; remove one of them")
	check(o.Fleet.ShardBy == "" || o.Fleet.ShardBy == string(assignment.ByNamespace),
		"--shard-by: expected %s with --namespace-selector, got %q; a namespace is left by one replica", assignment.ByNamespace, o.Fleet.ShardBy)
}

// texts returns networks as texts.
func texts(networks []netip.Prefix) (all []string) {
	for _, network := range networks {
		all = append(all, network.String())
	}
	return all
}
