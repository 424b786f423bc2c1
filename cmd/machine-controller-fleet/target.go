package main

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/bynamespace"
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

// declareTargets declares the flags that say where target clusters are.
func declareTargets(g *flags.Group, of *string, by *bynamespace.Selection, refused *[]string) {
	defaults := replica.DefaultOptions().Targets
	g.String(of, "target", targetKubeconfig, "which cluster the VMs join: kubeconfig (that of --target-kubeconfig, "+
		"for all namespaces), control (the one with the Machine objects), none, or namespace (the one that Secrets of each namespace name)")
	g.String(&by.Secret, "target-secret", defaults.Select.Secret, "with --target=namespace, "+
		"name of the Secret in each namespace that has the key kubeconfig, or the keys server, ca.crt and token or tls.crt and tls.key")
	g.String(&by.Labels, "target-secret-selector", "",
		"with --target=namespace, label selector of that Secret, of which the newest counts; then --target-secret has no effect")
	g.String(&by.Token, "target-token-secret", "", "with --target=namespace, name of the Secret in each namespace whose key "+
		"token is used in the place of a kubeconfig's token file, such as shoot-access-machine-controller-manager")
	g.List(refused, "target-refused-networks", texts(defaults.Refused),
		"with --target=namespace, networks in CIDR notation, separated by commas, in which no API server of a target cluster and no proxy may be")
}

// parseTargets returns where the target clusters of namespaces are. check records invalid networks.
func parseTargets(by bynamespace.Selection, refused []string, check func(ok bool, format string, args ...any)) replica.TargetOptions {
	if by.Labels != "" {
		by.Secret = ""
	}
	of := replica.TargetOptions{Select: by}
	for _, text := range refused {
		network, err := netip.ParsePrefix(text)
		check(err == nil, "--target-refused-networks: expected networks such as 169.254.0.0/16, got %q", text)
		of.Refused = append(of.Refused, network)
	}
	return of
}

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
		o.kubeconfigs.Target, shardBy = replica.NoTarget, assignment.ByNamespace
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
	o.Targets = parseTargets(o.Targets.Select, o.refusedNetworks, check)
	o.Targets.ByNamespace = o.target == targetByNamespace
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
