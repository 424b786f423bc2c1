// Package manifests holds what a lab applies to its clusters, besides the custom resource definitions: who may do what.
//
// These rules are also the least that a fleet needs in the wild. Everything is bound to the group
// machine-controller-fleet, whose members are the replicas, each a user of its own.
package manifests
