// Package manifests has the manifests that a lab applies to its clusters, besides the custom
// resource definitions: access rules.
//
// The access of the fleet is rendered from its Helm chart (fleet-control.yaml,
// fleet-landscape.yaml, fleet-target.yaml), so that the replicas of a lab run under the rules that
// the chart installs. There it is bound to the group machine-controller-fleet, whose members are
// the replicas, each with its own user.
package manifests
