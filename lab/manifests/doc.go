// Package manifests holds what a lab applies to its clusters, besides the custom resource definitions: who may do what.
//
// What the fleet may do is rendered from its Helm chart (fleet-control.yaml, fleet-target.yaml), so that the replicas of a
// lab run under the very rules that the chart installs. There it is bound to the group machine-controller-fleet, whose
// members are the replicas, each a user of its own.
package manifests
